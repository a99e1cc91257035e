package podsource

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A place is a value in a manifest, with the Go type into which it is decoded.
type place struct {
	value  any
	typ    reflect.Type // nil if the type has no field for it
	parent any          // *object or *list
	index  int
}

func (p place) replace(v any) {
	switch parent := p.parent.(type) {
	case *object:
		parent.members[p.index].value = v
	case *list:
		parent.items[p.index] = v
	}
}

// placesOf returns all values below v.
func placesOf(v any, t reflect.Type) (all []place) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case *object:
		fields := fieldsOf(t)
		for i, m := range v.members {
			child := fields[m.key]
			if t != nil && t.Kind() == reflect.Map {
				child = t.Elem()
			}
			all = append(all, place{m.value, child, v, i})
			all = append(all, placesOf(m.value, child)...)
		}
	case *list:
		var child reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			child = t.Elem()
		}
		for i, item := range v.items {
			all = append(all, place{item, child, v, i})
			all = append(all, placesOf(item, child)...)
		}
	}
	return all
}

// fieldsOf returns the fields of a struct by their JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct || decodesItself(t) {
		return fields
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			maps.Copy(fields, fieldsOf(f.Type))
		} else if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

func decodesItself(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{
		reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](),
		reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.FieldsV1](),
	}, t)
}

// breakOne makes one change to a manifest of type t. Most changes make it invalid.
func breakOne(d *judge.Draw, root any, t reflect.Type) {
	places := placesOf(root, t)
	if len(places) == 0 {
		return
	}
	p := places[d.Int(len(places))]
	switch d.Int(16) {
	case 0, 1, 2, 3, 4:
		p.replace(otherValue(d, p))
	case 5, 6, 7, 8, 9:
		addField(d, root, t)
	case 10:
		remove(p)
	case 11:
		p.replace(wrongType(d))
	case 12:
		p.replace(nil)
	case 13:
		repeat(p)
	case 14:
		strange(d, p)
	default:
		if o, ok := p.value.(*object); ok {
			addKnown(d, o, t)
		} else {
			p.replace(otherValue(d, p))
		}
	}
}

// addField adds a missing field to a struct of the manifest.
func addField(d *judge.Draw, root any, t reflect.Type) {
	structs := []place{{value: root, typ: t}}
	for _, p := range placesOf(root, t) {
		if _, ok := p.value.(*object); ok && len(fieldsOf(elem(p.typ))) > 0 {
			structs = append(structs, p)
		}
	}
	p := structs[d.Int(len(structs))]
	o, ok := p.value.(*object)
	if !ok {
		return
	}
	fields := fieldsOf(elem(p.typ))
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if get(o, name) == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		name := missing[d.Int(len(missing))]
		o.set(name, anyOf(d, fields[name], name, 3))
	}
}

func elem(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// anyOf returns a value of a type: of structs with some of their fields.
func anyOf(d *judge.Draw, t reflect.Type, name string, depth int) any {
	t = elem(t)
	switch {
	case t == nil:
		return anyString(d, name)
	case t == reflect.TypeFor[resource.Quantity]():
		return anyQuantity(d)
	case t == reflect.TypeFor[intstr.IntOrString]():
		if d.Chance(50) {
			return anyNumber(d)
		}
		return anyString(d, name)
	case t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.MicroTime]():
		return "2024-01-02T03:04:05Z"
	case t == reflect.TypeFor[metav1.FieldsV1]():
		return &object{}
	}
	switch t.Kind() {
	case reflect.Struct:
		o := &object{}
		fields := fieldsOf(t)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if depth > 0 && d.Chance(100/(1+len(fields)/3)) {
				o.set(name, anyOf(d, fields[name], name, depth-1))
			}
		}
		return o
	case reflect.Map:
		o := &object{}
		for range d.Between(1, 2) {
			key := judge.Pick(d, "key", "memory", "example.com/key", "cpu", "Bad Key", "hugepages-2Mi", "ephemeral-storage", "pods", "kubernetes.io/config.mirror")
			o.set(key, anyOf(d, t.Elem(), name, depth-1))
		}
		return o
	case reflect.Slice:
		l := &list{}
		for range d.Between(1, 2) {
			l.items = append(l.items, anyOf(d, t.Elem(), name, depth-1))
		}
		return l
	case reflect.Bool:
		return d.Chance(70)
	case reflect.Int32, reflect.Int64:
		return anyNumber(d)
	default:
		return anyString(d, name)
	}
}

func anyQuantity(d *judge.Draw) any {
	return judge.Pick[any](d, "1", "100m", "1Gi", "64Mi", "0", "-1", "1.5", "1e3", "0.5", number("2"), number("1.5"), "2Mi", "3Mi", "x", "", "1 Gi", "9e99")
}

func anyNumber(d *judge.Draw) any {
	return judge.Pick[any](d, number("1"), number("0"), number("-1"), number("2"), number("30"), number("80"), number("65535"), number("65536"),
		number("2147483647"), number("2147483648"), number("4294967296"), number("1.5"), number("1000"), number("511"), number("512"),
		number("9223372036854775807"), number("9223372036854775808"), number("1e2"))
}

// anyString returns a string for a field. It is often valid for the field.
func anyString(d *judge.Draw, name string) any {
	known := enums()[name]
	if len(known) > 0 && d.Chance(70) {
		return known[d.Int(len(known))]
	}
	return judge.Pick[any](d, "a", "web", "", "data", "None", "Bad_Name", "a b", "-x", "..", "../x", "/abs", "a/b", "a/../b", "/a:b", "10.0.0.1", "::1", "300.1.2.3",
		strings.Repeat("x", 64), strings.Repeat("x.", 126)+"y", "é", "UPPER", "1", "example.com/x", "a=b", " a", "a_b", "a:1", "a@b", "metadata.name",
		plain("yes"), plain("0x10"), plain("1e3"), plain("010"), plain("2024-01-02"))
}

// otherValue returns another value for a place.
func otherValue(d *judge.Draw, p place) any {
	name := ""
	if o, ok := p.parent.(*object); ok {
		name = o.members[p.index].key
	}
	switch v := p.value.(type) {
	case bool:
		return !v
	case string, plain:
		if p.typ == reflect.TypeFor[resource.Quantity]() {
			return anyQuantity(d)
		}
		return anyString(d, name)
	case number:
		return anyNumber(d)
	default:
		return anyOf(d, p.typ, name, 3)
	}
}

func wrongType(d *judge.Draw) any {
	return judge.Pick[any](d, "text", number("7"), true, &list{}, &object{}, &list{items: []any{"a"}}, &object{members: []member{{"a", "b"}}}, number("1.5"))
}

func remove(p place) {
	switch parent := p.parent.(type) {
	case *object:
		parent.members = slices.Delete(parent.members, p.index, p.index+1)
	case *list:
		parent.items = slices.Delete(parent.items, p.index, p.index+1)
	}
}

// repeat duplicates a key or an item.
func repeat(p place) {
	switch parent := p.parent.(type) {
	case *object:
		parent.members = append(parent.members, member{parent.members[p.index].key, clone(p.value)})
	case *list:
		parent.items = append(parent.items, clone(p.value))
	}
}

// strange changes a key, or adds an unknown key.
func strange(d *judge.Draw, p place) {
	o, ok := p.parent.(*object)
	if !ok {
		return
	}
	if d.Chance(50) {
		o.members = append(o.members, member{"unheardOf", judge.Pick[any](d, "x", number("1"), &object{})})
		return
	}
	key := &o.members[p.index].key
	*key = strings.ToUpper((*key)[:min(1, len(*key))]) + (*key)[min(1, len(*key)):]
}

// addKnown adds a field that is valid only in other objects.
func addKnown(d *judge.Draw, o *object, _ reflect.Type) {
	o.set(judge.Pick(d, "name", "image", "key", "operator", "path", "hostPath", "exec", "sleep", "value", "httpGet"), anyString(d, "name"))
}

const (
	unknownField = "unknown field"
	givenTwice   = "duplicate field"
)

// strictOf returns the errors of strict decoding in a pod's manifest, by path.
func strictOf(doc any) map[string]string {
	found := map[string]string{}
	addStrict(found, "", doc, reflect.TypeFor[corev1.Pod]())
	return found
}

func addStrict(found map[string]string, path string, v any, t reflect.Type) {
	t = elem(t)
	if t == nil || decodesItself(t) {
		return
	}
	switch v := v.(type) {
	case *object:
		if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
			return
		}
		fields, seen := fieldsOf(t), map[string]bool{}
		for _, m := range v.members {
			child, typ := strings.TrimPrefix(path+"."+m.key, "."), fields[m.key]
			if t.Kind() == reflect.Map {
				child, typ = path+"["+m.key+"]", t.Elem()
			}
			switch {
			case seen[m.key]:
				found[child] = givenTwice
			case typ == nil:
				found[child] = unknownField
			}
			if typ != nil {
				addStrict(found, child, m.value, typ) // also for a duplicate key
			}
			seen[m.key] = true
		}
	case *list:
		if t.Kind() == reflect.Slice {
			for i, item := range v.items {
				addStrict(found, path+"["+strconv.Itoa(i)+"]", item, t.Elem())
			}
		}
	}
}
