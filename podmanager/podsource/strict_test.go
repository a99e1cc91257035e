package podsource

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type inner struct {
	Port intstr.IntOrString `json:"port"`
}

type sample struct {
	inner  `json:",inline"`
	Name   string            `json:"name,omitempty"`
	Count  *int32            `json:"count"`
	Long   int64             `json:"long"`
	Map    map[string]string `json:"map"`
	List   []inner           `json:"list"`
	Hidden string            `json:"-"`
	Float  float64           `json:"float"`
}

func TestCheckFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{}`: nil,
		`{"name":"a","count":1,"long":2,"map":{"a":"b"},"list":[{"port":"http"},{"port":80}],"port":1,"float":1.5}`: nil,
		`{"name":null,"count":null,"map":null,"list":null,"port":null}`:                                             nil,
		`{"Name":"a"}`:           {"Name: Forbidden: unknown field"},
		`{"Hidden":"a"}`:         {"Hidden: Forbidden: unknown field"},
		`{"-":"a"}`:              {"-: Forbidden: unknown field"},
		`{"inner":{}}`:           {"inner: Forbidden: unknown field"},
		`{"count":2147483648}`:   {"count: Invalid value: 2147483648: must be an integer of 32 bits, not a number"},
		`{"long":"1"}`:           {`long: Invalid value: "1": must be an integer of 64 bits, not a string`},
		`{"float":"1"}`:          {`float: Invalid value: "1": must be another type, not a string`},
		`{"list":[1,{"p":2}]}`:   {"list[0]: Invalid value: 1: must be an object, not a number", "list[1].p: Forbidden: unknown field"},
		`{"map":{"a.b/c":true}}`: {"map[a.b/c]: Invalid value: true: must be a string, not a boolean"},
		`{"map":{"a":"1","a":"2"},"name":"a","name":"b","name":"c"}`: {
			"map[a]: Forbidden: duplicate field",
			"name: Forbidden: duplicate field",
			"name: Forbidden: duplicate field",
		},
	} {
		var got []string
		for _, err := range checkFields([]byte(text), reflect.TypeFor[sample](), false) {
			got = append(got, err.Error())
		}
		require.Equal(t, want, got, text)
	}
}

func TestCheckFields_ShortensValuesInErrors(t *testing.T) {
	t.Parallel()
	c := new(checker)
	require.JSONEq(t, `{"a":1}`, fmt.Sprintf("%s", c.shown(json.RawMessage(` {"a":1} `))))
	long, ok := c.shown(json.RawMessage(`"` + strings.Repeat("ä", 100) + `"`)).(string)
	require.True(t, ok)
	require.Less(t, len(long), 70)
	require.True(t, strings.HasSuffix(long, "ä…"), "the message must not be truncated within a rune")
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" ": "nothing", " {": "an object", "[]": "a list", `"`: "a string", "true": "a boolean",
		"false": "a boolean", "null": "null", "-1": "a number", "7": "a number",
	} {
		require.Equal(t, want, kindOf([]byte(text)), text)
	}
}

func TestSplitYAML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []document
	}{
		"nothing":             {"", nil},
		"comments and blanks": {"# a\n\n---\n  # b\n...\n", nil},
		"one":                 {"a: 1\n", []document{{1, []byte("a: 1\n")}}},
		"line numbers stay":   {"# c\n\na: 1", []document{{1, []byte("\n\na: 1")}}},
		"two and an empty one": {
			"a: 1\n---\n---\nb: 2\n",
			[]document{{1, []byte("a: 1\n")}, {2, []byte("\n\n\nb: 2\n")}},
		},
		"ended by dots": {
			"a: 1\n...\nb: 2\n",
			[]document{{1, []byte("a: 1\n")}, {2, []byte("\n\nb: 2\n")}},
		},
		"behind the marker": {"--- a: 1\n", []document{{1, []byte("    a: 1\n")}}},
		"not markers":       {"a: |\n  ---\n----\n---x\n", []document{{1, []byte("a: |\n  ---\n----\n---x\n")}}},
		"at the end":        {"a: 1\n---", []document{{1, []byte("a: 1\n")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, splitYAML([]byte(c.text)))
		})
	}
}
