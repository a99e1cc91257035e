package kubeletconfig

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// assign stores the value of the node in *into. If the value has a wrong type or is out of range,
// assign adds a problem and leaves *into unchanged. If only an item of a list or a field of an
// object is wrong, assign stores the rest of the list or object.
func (p *reader) assign(name string, node *yaml.Node, into any) {
	node = resolved(node)
	switch into := into.(type) {
	case *string:
		scalar[string]{"a string", "!!str", asString}.assign(p, name, node, into)
	case *bool:
		scalar[bool]{"true or false", "!!bool", strconv.ParseBool}.assign(p, name, node, into)
	case **bool:
		optional(p, name, node, into)
	case *int32:
		scalar[int32]{"a whole number", "!!int", asInt32}.assign(p, name, node, into)
	case **int32:
		optional(p, name, node, into)
	case *int64:
		scalar[int64]{"a whole number", "!!int", asInt64}.assign(p, name, node, into)
	case *metav1.Duration:
		scalar[metav1.Duration]{"a duration such as 1m30s", "!!str", asDuration}.assign(p, name, node, into)
	case **metav1.Duration:
		optional(p, name, node, into)
	case *[]string:
		list(p, name, node, into)
	case *[]int32:
		list(p, name, node, into)
	case *[]ShutdownGracePeriodByPodPriority:
		list(p, name, node, into)
	case *[]corev1.Taint:
		list(p, name, node, into)
	case *map[string]string:
		mapping(p, name, node, into)
	case *map[string][]string:
		mapping(p, name, node, into)
	case *CrashLoopBackOffConfig:
		p.members(name, node, members{"maxContainerRestartPeriod": &into.MaxContainerRestartPeriod})
	case *ShutdownGracePeriodByPodPriority:
		p.members(name, node, members{
			"priority": &into.Priority, "shutdownGracePeriodSeconds": &into.ShutdownGracePeriodSeconds,
		})
	case *corev1.Taint:
		p.members(name, node, members{"key": &into.Key, "value": &into.Value, "effect": (*string)(&into.Effect)})
	case *KubeletAuthentication:
		p.members(name, node, into.members())
	case *KubeletAuthorization:
		p.members(name, node, into.members())
	case members:
		p.members(name, node, into)
	default:
		p.problem(node.Line, name, "unsupported type %T", into)
	}
}

// resolved returns the target of a YAML alias. It returns any other node unchanged.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

// defaulted sets *into to the default if *into is zero. It reports whether it has set the
// default.
func defaulted(into, byDefault any) bool {
	switch into := into.(type) {
	case *string:
		return replaceZero(into, byDefault)
	case *int32:
		return replaceZero(into, byDefault)
	case *metav1.Duration:
		return replaceZero(into, byDefault)
	}
	return false
}

func replaceZero[T comparable](into *T, byDefault any) bool {
	d, ok := byDefault.(*T)
	if !ok || *into != *new(T) {
		return false
	}
	*into = *d
	return true
}

// scalar describes a type of scalar values: its description for people, its YAML tag, and its
// parser.
type scalar[T any] struct {
	want, tag string
	read      func(string) (T, error)
}

func (s scalar[T]) assign(p *reader, name string, node *yaml.Node, into *T) {
	if node.Kind == yaml.ScalarNode && node.Tag == s.tag {
		if v, err := s.read(node.Value); err == nil {
			*into = v
			return
		}
	}
	p.problem(node.Line, name, "want %s, got %s", s.want, describe(node))
}

func optional[T any](p *reader, name string, node *yaml.Node, into **T) {
	before, v := len(p.problems), new(T)
	p.assign(name, node, v)
	if len(p.problems) == before {
		*into = v
	}
}

func list[T any](p *reader, name string, node *yaml.Node, into *[]T) {
	if node.Kind != yaml.SequenceNode {
		p.problem(node.Line, name, "want a list, got %s", describe(node))
		return
	}
	all := make([]T, len(node.Content))
	for i, item := range node.Content {
		p.assign(fmt.Sprintf("%s[%d]", name, i), item, &all[i])
	}
	*into = all
}

func mapping[T any](p *reader, name string, node *yaml.Node, into *map[string]T) {
	if node.Kind != yaml.MappingNode {
		p.problem(node.Line, name, "want fields with values, got %s", describe(node))
		return
	}
	all := map[string]T{}
	for key, value := range p.pairs(name+".", node) {
		var v T
		p.assign(name+"."+key.Value, value, &v)
		all[key.Value] = v
	}
	*into = all
}

// members has the fields of a nested object, by name. Each value is a pointer that [reader.assign]
// supports, or another value of the type members.
type members map[string]any

// members reads the fields of a nested object.
func (p *reader) members(name string, node *yaml.Node, into members) {
	if node.Kind != yaml.MappingNode {
		p.problem(node.Line, name, "want fields with values, got %s", describe(node))
		return
	}
	for key, value := range p.pairs(name+".", node) {
		switch to, ok := into[key.Value]; {
		case !ok:
			p.problem(key.Line, name+"."+key.Value, "unknown field")
		case value.Tag != "!!null":
			p.assign(name+"."+key.Value, value, to)
		}
	}
}

// pairs yields the fields of a mapping. It adds a problem for each field that is set again, and
// does not yield that field again.
func (p *reader) pairs(prefix string, node *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(*yaml.Node, *yaml.Node) bool) {
		seen := map[string]int{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if key.Kind != yaml.ScalarNode {
				p.problem(key.Line, strings.TrimSuffix(prefix, "."), "want names of fields, got %s", describe(key))
				continue
			}
			if first, ok := seen[key.Value]; ok {
				p.problem(key.Line, prefix+key.Value, "is already set in line %d", first)
				continue
			}
			seen[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

// describe describes the value of a node for people.
func describe(node *yaml.Node) string {
	text := node.Value
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	switch {
	case node.Kind == yaml.MappingNode:
		return "fields"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias"
	case node.Tag == "!!str":
		return strconv.Quote(text)
	case node.Tag == "!!null":
		return "nothing"
	case node.Tag == "!!int", node.Tag == "!!float":
		return "the number " + text
	}
	return text
}

func asString(text string) (string, error) { return text, nil }

func asInt64(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64)
}

func asInt32(text string) (int32, error) {
	n, err := asInt64(text)
	if n > math.MaxInt32 || n < math.MinInt32 {
		return 0, strconv.ErrRange
	}
	return int32(n), err
}

func asDuration(text string) (metav1.Duration, error) {
	d, err := time.ParseDuration(text)
	return metav1.Duration{Duration: d}, err
}
