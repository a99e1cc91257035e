package podrunner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeparts/kubeparts/internal/expansion"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// environment returns the container's environment variables in this order: the
// variables of services, the variables of the envFrom sources, and the
// variables of env. The variables of each envFrom source are sorted by name. A
// value in env may refer to earlier variables. A later variable replaces an
// earlier variable with the same name.
func environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container, in Instance, node Node) (*variables, error) {
	vars := &variables{at: map[string]int{}}
	objects := references{pod: pod, objects: node.Objects}
	from := sources{pod: pod, container: c, instance: in, node: node, objects: objects}
	if err := vars.setServices(pod, node.Services); err != nil {
		return nil, err
	}
	for i := range c.EnvFrom {
		all, err := objects.all(ctx, &c.EnvFrom[i])
		if err != nil {
			return nil, err
		}
		for _, key := range sortedKeys(all) {
			vars.set(c.EnvFrom[i].Prefix+key, all[key])
		}
	}
	for _, e := range c.Env {
		text, ok := vars.expand(e.Value), true
		if e.Value == "" && e.ValueFrom != nil {
			var err error
			if text, ok, err = from.value(ctx, e.ValueFrom); err != nil {
				return nil, err
			}
		}
		if ok {
			vars.set(e.Name, text)
		}
	}
	return vars, vars.check()
}

// sources are the sources of a container's variables.
type sources struct {
	pod       *corev1.Pod
	container *corev1.Container
	instance  Instance
	node      Node
	objects   references
}

// value returns the value of a variable's source. ok is false if the source is
// optional and missing.
func (f sources) value(ctx context.Context, s *corev1.EnvVarSource) (text string, ok bool, err error) {
	switch {
	case s.FieldRef != nil:
		text, err = FieldValue(s.FieldRef, f.pod, f.instance.PodIPs, f.node)
		return text, true, err
	case s.ResourceFieldRef != nil:
		text, err = ResourceValue(s.ResourceFieldRef, f.pod, f.container, f.node.Allocatable)
		return text, true, err
	case s.ConfigMapKeyRef != nil:
		r := s.ConfigMapKeyRef
		return f.objects.key(ctx, reference{configMapKind, r.Name, r.Key, isTrue(r.Optional)})
	case s.SecretKeyRef != nil:
		r := s.SecretKeyRef
		return f.objects.key(ctx, reference{secretKind, r.Name, r.Key, isTrue(r.Optional)})
	default:
		return "", false, fmt.Errorf("valueFrom has no supported source")
	}
}

// references reads the ConfigMaps and Secrets of a pod's namespace.
type references struct {
	pod     *corev1.Pod
	objects podspec.Objects
}

// all returns every entry of the object that envFrom names.
func (r references) all(ctx context.Context, from *corev1.EnvFromSource) (map[string]string, error) {
	var data map[string]string
	var err error
	optional := false
	switch {
	case from.ConfigMapRef != nil:
		optional = isTrue(from.ConfigMapRef.Optional)
		data, err = r.configMap(ctx, from.ConfigMapRef.Name)
	case from.SecretRef != nil:
		optional = isTrue(from.SecretRef.Optional)
		data, err = r.secret(ctx, from.SecretRef.Name)
	}
	if optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	return data, err
}

// The kinds of objects in error messages.
const (
	configMapKind = "ConfigMap"
	secretKind    = "Secret"
)

// reference is a reference to one key of an object.
type reference struct {
	kind, name, key string
	optional        bool
}

// key returns one entry of an object. ok is false if the entry is optional and
// missing.
func (r references) key(ctx context.Context, to reference) (text string, ok bool, err error) {
	data := r.configMap
	if to.kind == secretKind {
		data = r.secret
	}
	entries, err := data(ctx, to.name)
	if err != nil {
		if to.optional && apierrors.IsNotFound(err) {
			return "", false, nil
		}
		return "", false, err
	}
	if text, ok = entries[to.key]; !ok && !to.optional {
		return "", false, fmt.Errorf("couldn't find key %v in %s %v/%v", to.key, to.kind, r.pod.Namespace, to.name)
	}
	return text, ok, nil
}

func (r references) configMap(ctx context.Context, name string) (map[string]string, error) {
	if r.objects == nil {
		return nil, notFound("configmap", name)
	}
	m, err := r.objects.ConfigMap(ctx, r.pod, name)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, notFound("configmap", name)
	}
	return m.Data, nil
}

func (r references) secret(ctx context.Context, name string) (map[string]string, error) {
	if r.objects == nil {
		return nil, notFound("secret", name)
	}
	s, err := r.objects.Secret(ctx, r.pod, name)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, notFound("secret", name)
	}
	data := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return data, nil
}

func notFound(kind, name string) error {
	return apierrors.NewNotFound(corev1.Resource(kind), name)
}

// variables is an ordered environment.
type variables struct {
	names, values []string
	at            map[string]int
	bytes         int // total length of everything that was set and expanded
}

func (v *variables) set(name, value string) {
	v.bytes += len(name) + len(value)
	if i, ok := v.at[name]; ok {
		v.values[i] = value
		return
	}
	v.at[name] = len(v.names)
	v.names, v.values = append(v.names, name), append(v.values, value)
}

// below returns v together with the variables in the map more. If both have the
// same variable, the value in v is used. The values in v are not expanded
// again, so they cannot refer to variables in more.
func (v *variables) below(more map[string]string) (*variables, error) {
	if len(more) == 0 {
		return v, nil
	}
	all := &variables{at: map[string]int{}}
	for _, name := range sortedKeys(more) {
		all.set(name, more[name])
	}
	injected := all.bytes
	for i, name := range v.names {
		all.set(name, v.values[i])
	}
	all.bytes = injected + v.bytes
	return all, all.check()
}

func (v *variables) get(name string) (string, bool) {
	i, ok := v.at[name]
	if !ok {
		return "", false
	}
	return v.values[i], true
}

// check returns an error if a name or a value can't be part of an environment.
// With such a name or value, the program would get another variable, or would
// not start.
func (v *variables) check() error {
	for i, name := range v.names {
		switch {
		case strings.ContainsAny(name, "=\x00"):
			return fmt.Errorf("environment variable %q: the name must not contain '=' or a zero byte", name)
		case strings.ContainsRune(v.values[i], 0):
			return fmt.Errorf("environment variable %q: the value must not contain a zero byte", name)
		}
	}
	return nil
}

// expandAll expands each word of a command line.
func (v *variables) expandAll(words []string) []string {
	if words == nil {
		return nil
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = v.expand(w)
		v.bytes += len(out[i])
	}
	return out
}

// expand replaces $(NAME) by the variable's value; a reference to an unknown
// name is not changed.
func (v *variables) expand(s string) string {
	return v.expandBy(s, func(name string) string {
		if value, known := v.get(name); known {
			return value
		}
		return "$(" + name + ")"
	})
}

// expandBy replaces each $(NAME) in s by the result of value(NAME). If the
// expanded text is too long, this call and all later calls of expandBy return
// an empty string, and [variables.fits] returns an error.
func (v *variables) expandBy(s string, value func(name string) string) string {
	text, ok := expansion.Expand(s, expansion.MaxBytes-v.bytes, value)
	if !ok {
		v.bytes = expansion.MaxBytes + 1
	}
	return text
}

// fits returns an error if the environment, command and arguments together are
// too long to start a program. A value counts even if a later variable of the
// same name has replaced it.
func (v *variables) fits() error {
	if v.bytes > expansion.MaxBytes {
		return expansion.ErrTooLong{What: "environment, command and arguments"}
	}
	return nil
}

// expandPath expands a subPathExpr, in which every variable must have a value.
func (v *variables) expandPath(s string) (string, error) {
	var missing []string
	path := v.expandBy(s, func(name string) string {
		value, _ := v.get(name)
		if value == "" && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return value
	})
	v.bytes += len(path)
	if err := v.fits(); err != nil {
		return "", err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", fmt.Errorf("missing value for %s", strings.Join(missing, ", "))
	}
	return path, nil
}
