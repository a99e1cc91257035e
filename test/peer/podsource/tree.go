package podsource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A value of a manifest is one of *object, *list, string, bool, number, plain and nil.
// Objects keep the order of their members and may have duplicate keys, as text can.
type (
	object struct{ members []member }
	member struct {
		key   string
		value any
	}
	list   struct{ items []any }
	number string
	plain  string // an unquoted scalar in YAML, of any type
)

// treeOf returns what v marshals to as JSON.
func treeOf(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return read(dec)
}

func read(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return number(t), nil
	case json.Delim:
		if t == '[' {
			l := &list{}
			for dec.More() {
				item, err := read(dec)
				if err != nil {
					return nil, err
				}
				l.items = append(l.items, item)
			}
			_, err := dec.Token()
			return l, err
		}
		o := &object{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := read(dec)
			if err != nil {
				return nil, err
			}
			o.members = append(o.members, member{fmt.Sprint(key), value})
		}
		_, err := dec.Token()
		return o, err
	default:
		return t, nil // string, bool or nil
	}
}

// get returns a member's value: the last one with the key.
func get(v any, path ...string) any {
	for _, key := range path {
		o, ok := v.(*object)
		if !ok {
			return nil
		}
		v = nil
		for _, m := range o.members {
			if m.key == key {
				v = m.value
			}
		}
	}
	return v
}

// text returns a string of a manifest, or "" if the value is not a string.
func text(v any, path ...string) string {
	switch v := get(v, path...).(type) {
	case string:
		return v
	case plain:
		return string(v)
	default:
		return ""
	}
}

// set replaces or adds a member.
func (o *object) set(key string, value any) {
	for i := range o.members {
		if o.members[i].key == key {
			o.members[i].value = value
			return
		}
	}
	o.members = append(o.members, member{key, value})
}

func clone(v any) any {
	switch v := v.(type) {
	case *object:
		c := &object{}
		for _, m := range v.members {
			c.members = append(c.members, member{m.key, clone(m.value)})
		}
		return c
	case *list:
		c := &list{}
		for _, item := range v.items {
			c.items = append(c.items, clone(item))
		}
		return c
	default:
		return v
	}
}

// toJSON writes a value as JSON text.
func toJSON(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *object:
		b.WriteByte('{')
		for i, m := range v.members {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, m.key)
			b.WriteByte(':')
			toJSON(b, m.value)
		}
		b.WriteByte('}')
	case *list:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			toJSON(b, item)
		}
		b.WriteByte(']')
	case string:
		quote(b, v)
	case plain:
		quote(b, string(v))
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}

func quote(b *strings.Builder, s string) {
	data, _ := json.Marshal(s) // a string always marshals
	b.Write(data)
}

// toYAML writes a value as block YAML below a key or a dash.
func toYAML(b *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case *object:
		if len(v.members) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteByte('\n')
		for _, m := range v.members {
			b.WriteString(indent)
			quote(b, m.key)
			b.WriteByte(':')
			toYAML(b, m.value, indent+"  ")
		}
	case *list:
		if len(v.items) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteByte('\n')
		for _, item := range v.items {
			b.WriteString(indent)
			b.WriteByte('-')
			toYAML(b, item, indent+"  ")
		}
	case plain:
		b.WriteString(" " + string(v) + "\n")
	default:
		b.WriteByte(' ')
		toJSON(b, v)
		b.WriteByte('\n')
	}
}
