package fakeyaml

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder collects what is wrong with a document.
type decoder struct{ errs []error }

func (d *decoder) fail(path, format string, args ...any) {
	if path == "" {
		path = "document"
	}
	d.errs = append(d.errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// reader takes the value at a path: nil, bool, string, json.Number, []any or
// map[string]any. It tells the decoder when it cannot.
type reader func(d *decoder, path string, v any)

// object takes a mapping whose keys are known. No value is an empty mapping.
func object(fields map[string]reader) reader {
	return func(d *decoder, path string, v any) {
		for key, value := range mapping(d, path, v) {
			field := strings.TrimPrefix(path+"."+key, ".")
			if read, ok := fields[key]; ok {
				read(d, field, value)
			} else {
				d.fail(field, "unknown field, there are %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
		}
	}
}

// table takes a mapping with any keys. An empty one is not nil, which for
// Program.Exec makes a difference.
func table[T any](to *map[string]T, element func(*T) reader) reader {
	return func(d *decoder, path string, v any) {
		*to = map[string]T{}
		for key, value := range mapping(d, path, v) {
			var one T
			element(&one)(d, fmt.Sprintf("%s[%q]", path, key), value)
			(*to)[key] = one
		}
	}
}

// mapping yields the entries of a mapping, sorted by key.
func mapping(d *decoder, path string, v any) func(yield func(string, any) bool) {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		d.fail(path, "a mapping is wanted")
	}
	return func(yield func(string, any) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

func list[T any](to *[]T, element func(*T) reader) reader {
	return func(d *decoder, path string, v any) {
		items, ok := v.([]any)
		if !ok && v != nil {
			d.fail(path, "a list is wanted")
		}
		*to = make([]T, len(items))
		for i, item := range items {
			element(&(*to)[i])(d, fmt.Sprintf("%s[%d]", path, i), item)
		}
	}
}

func pointer[T any](to **T, element func(*T) reader) reader {
	return func(d *decoder, path string, v any) {
		*to = new(T)
		element(*to)(d, path, v)
	}
}

func text[T ~string](to *T) reader {
	return func(d *decoder, path string, v any) {
		s, ok := v.(string)
		if !ok {
			d.fail(path, "a text is wanted; numbers need quotes")
		}
		*to = T(s)
	}
}

func boolean(to *bool) reader {
	return func(d *decoder, path string, v any) {
		b, ok := v.(bool)
		if !ok {
			d.fail(path, "true or false is wanted")
		}
		*to = b
	}
}

// integer takes a whole number that its type can hold.
func integer[T int | int32 | uint16](to *T) reader {
	return func(d *decoder, path string, v any) {
		number, ok := v.(json.Number)
		value, err := strconv.ParseInt(number.String(), 10, 64)
		if !ok || err != nil || int64(T(value)) != value {
			d.fail(path, "%v is no whole number, or too large", v)
			return
		}
		*to = T(value)
	}
}

func duration(to *time.Duration) reader {
	return func(d *decoder, path string, v any) {
		s, ok := v.(string)
		value, err := time.ParseDuration(s)
		if !ok || err != nil {
			d.fail(path, "%v is no duration, such as 500ms or 1m30s", v)
			return
		}
		*to = value
	}
}

// size takes a number that may have a suffix.
func size(to *uint64) reader {
	return func(d *decoder, path string, v any) {
		var s string
		switch v := v.(type) {
		case json.Number:
			s = v.String()
		case string:
			s = v
		}
		value, ok := parseSize(s)
		if !ok {
			d.fail(path, "%v is no size, such as 4096 or 64Mi", v)
			return
		}
		*to = value
	}
}

func parseSize(s string) (uint64, bool) {
	digits := strings.TrimRight(s, "kKMGTi")
	unit, ok := map[string]uint64{
		"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	}[s[len(digits):]]
	value, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0, false
	}
	hi, product := bits.Mul64(value, unit)
	return product, hi == 0
}
