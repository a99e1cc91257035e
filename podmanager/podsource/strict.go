package podsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/internal/quantity"
)

// checkFields compares a JSON value with the Go type into which it will be decoded. It
// returns an error with the path for every unknown field, every duplicate key and every
// value of a wrong type.
//
// A JSON decoder would stop at the first wrong type, and report the Go type instead of the
// path. For a type with its own UnmarshalJSON, such as a quantity, the decoder would
// report neither the Go type nor the path.
//
// If secret is true, errors contain no values.
func checkFields(data []byte, t reflect.Type, secret bool) field.ErrorList {
	c := checker{fields: make(map[reflect.Type]map[string]reflect.Type), secret: secret}
	c.value(nil, data, t)
	return c.errs
}

type checker struct {
	errs   field.ErrorList
	secret bool
	fields map[reflect.Type]map[string]reflect.Type // of the structs visited so far
}

func (c *checker) value(path *field.Path, raw json.RawMessage, t reflect.Type) {
	if kindOf(raw) == "null" {
		return // null means not set, as in the API
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		if err := quantity.Check(strings.Trim(string(raw), `"`)); err != nil {
			c.errs = append(c.errs, field.TypeInvalid(path, c.shown(raw), err.Error()))
			return
		}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
			if c.secret {
				err = errors.New("cannot be decoded") // without the value
			}
			c.errs = append(c.errs, field.TypeInvalid(path, c.shown(raw), err.Error()))
		}
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.value(path, raw, t.Elem())
	case reflect.Struct:
		c.object(path, raw, c.fieldsOf(t), nil)
	case reflect.Map:
		c.object(path, raw, nil, t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			c.bytes(path, raw)
			return
		}
		c.list(path, raw, t)
	default:
		if json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
			c.wrong(path, raw, wanted(t))
		}
	}
}

// object checks a struct or a map. For a struct, the third argument has the types of its
// fields, and the last argument is nil. For a map, the third argument is nil, and the last
// argument is the type of the map's values.
func (c *checker) object(path *field.Path, raw json.RawMessage, fields map[string]reflect.Type, all reflect.Type) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		c.wrong(path, raw, "an object")
		return
	}
	seen := make(map[string]bool)
	for dec.More() {
		token, err := dec.Token()
		name, isString := token.(string)
		var member json.RawMessage
		if err != nil || !isString || dec.Decode(&member) != nil {
			c.wrong(path, raw, "an object")
			return
		}
		child, t := path.Child(name), all
		if all != nil {
			child = path.Key(name)
		} else {
			t = fields[name]
		}
		switch {
		case seen[name]:
			c.errs = append(c.errs, field.Forbidden(child, "duplicate field"))
		case t == nil:
			c.errs = append(c.errs, field.Forbidden(child, "unknown field"))
		}
		if t != nil {
			c.value(child, member, t) // check a duplicate field too, because it is decoded
		}
		seen[name] = true
	}
}

func (c *checker) list(path *field.Path, raw json.RawMessage, t reflect.Type) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		c.wrong(path, raw, "a list")
		return
	}
	for i, item := range items {
		c.value(path.Index(i), item, t.Elem())
	}
}

// bytes checks a byte slice, which is base64 text in JSON.
func (c *checker) bytes(path *field.Path, raw json.RawMessage) {
	var data []byte
	switch {
	case kindOf(raw) != "a string":
		c.wrong(path, raw, "a string")
	case json.Unmarshal(raw, &data) != nil:
		c.errs = append(c.errs, field.Invalid(path, c.shown(raw), "must be base64"))
	}
}

func (c *checker) wrong(path *field.Path, raw json.RawMessage, want string) {
	c.errs = append(c.errs, field.TypeInvalid(path, c.shown(raw), "must be "+want+", not "+kindOf(raw)))
}

// fieldsOf returns the types of a struct's fields by JSON name, including the fields of
// embedded structs.
func (c *checker) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if fields, ok := c.fields[t]; ok {
		return fields
	}
	fields := make(map[string]reflect.Type)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(fields, c.fieldsOf(f.Type))
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
	c.fields[t] = fields
	return fields
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64:
		return "an integer of " + strconv.Itoa(t.Bits()) + " bits"
	default:
		return "another type"
	}
}

// kindOf returns the kind of a JSON value, with an article, such as "a list". The first
// character of the value determines the kind.
func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// hidden replaces secret values in errors.
const hidden = "(hidden)"

// shown returns a value for an error message: hidden if it is secret, and cut if it is
// long.
func (c *checker) shown(raw json.RawMessage) any {
	const most = 60
	if c.secret {
		return hidden
	}
	if raw = bytes.TrimSpace(raw); len(raw) <= most {
		return raw
	}
	return strings.ToValidUTF8(string(raw[:most]), "") + "…"
}
