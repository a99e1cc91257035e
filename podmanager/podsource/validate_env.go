package podsource

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *validator) env(at *field.Path, c *corev1.Container) {
	for i, e := range c.Env {
		at := at.Child("env").Index(i)
		v.named(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		if e.ValueFrom != nil && e.Value != "" {
			v.add(field.Forbidden(at.Child("valueFrom"), "must not be set together with value"))
		}
		if e.ValueFrom != nil {
			v.valueFrom(at.Child("valueFrom"), e.ValueFrom)
		}
	}
	for i, from := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		if from.Prefix != "" {
			v.invalid(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix)...)
		}
		if (from.ConfigMapRef == nil) == (from.SecretRef == nil) {
			v.add(field.Forbidden(at, "must have exactly one of configMapRef and secretRef"))
		}
		if r := from.ConfigMapRef; r != nil {
			v.named(at.Child("configMapRef", "name"), r.Name, namePrefix)
		}
		if r := from.SecretRef; r != nil {
			v.named(at.Child("secretRef", "name"), r.Name, namePrefix)
		}
	}
}

// namePrefix checks a name that may end in a dash, which the kubelet allows in envFrom.
func namePrefix(name string) []string {
	if strings.HasSuffix(name, "-") && len(name) > 1 {
		name = name[:len(name)-2] + "a"
	}
	return validation.IsDNS1123Subdomain(name)
}

func (v *validator) valueFrom(at *field.Path, from *corev1.EnvVarSource) {
	sources := 0
	for _, source := range reflect.ValueOf(*from).Fields() {
		if !source.IsNil() {
			sources++
		}
	}
	if sources != 1 {
		v.add(field.Forbidden(at, "must have exactly one source"))
	}
	if r := from.ConfigMapKeyRef; r != nil {
		v.keyRef(at.Child("configMapKeyRef"), r.Name, r.Key)
	}
	if r := from.SecretKeyRef; r != nil {
		v.keyRef(at.Child("secretKeyRef"), r.Name, r.Key)
	}
	if r := from.FieldRef; r != nil {
		v.fieldRef(at.Child("fieldRef"), r, envFields)
	}
	if r := from.ResourceFieldRef; r != nil {
		v.resourceRef(at.Child("resourceFieldRef"), r)
		v.divisor(at.Child("resourceFieldRef", "divisor"), r)
	}
}

func (v *validator) keyRef(at *field.Path, name, key string) {
	v.named(at.Child("name"), name, validation.IsDNS1123Subdomain)
	v.named(at.Child("key"), key, validation.IsConfigMapKey)
}

// The fields of a pod to which an environment variable or a file in a volume can refer.
const (
	envFields = "metadata.name metadata.namespace metadata.uid spec.nodeName spec.host spec.serviceAccountName " +
		"status.hostIP status.hostIPs status.podIP status.podIPs"
	fileFields = "metadata.name metadata.namespace metadata.labels metadata.annotations metadata.uid"
)

// fieldRef checks a reference to a field of the pod, or to one label or annotation.
func (v *validator) fieldRef(at *field.Path, r *corev1.ObjectFieldSelector, allowed string) {
	path, fields := at.Child("fieldPath"), strings.Fields(allowed)
	name, key, one := strings.Cut(r.FieldPath, "['")
	key, closed := strings.CutSuffix(key, "']")
	switch one = one && closed; {
	case r.FieldPath == "":
		v.add(field.Required(path, ""))
	case r.APIVersion != "v1":
		v.invalid(path, r.FieldPath, "a pod has no API version "+r.APIVersion)
	case one && name == "metadata.labels":
		v.invalid(at, key, validation.IsQualifiedName(key)...)
	case one && name == "metadata.annotations":
		v.invalid(at, key, validation.IsQualifiedName(strings.ToLower(key))...)
	case one || !slices.Contains(fields, r.FieldPath):
		v.add(field.NotSupported(path, r.FieldPath, fields))
	}
}

// resourceFields are the resources of a container to which an environment variable or a
// file in a volume can refer. Each size of huge pages is allowed too.
const resourceFields = "limits.cpu limits.memory limits.ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage"

func isResourceField(name string) bool {
	return strings.HasPrefix(name, "limits.hugepages-") || strings.HasPrefix(name, "requests.hugepages-") ||
		slices.Contains(strings.Fields(resourceFields), name)
}

// resourceRef checks a reference to a resource of a container.
func (v *validator) resourceRef(at *field.Path, r *corev1.ResourceFieldSelector) {
	v.required(at.Child("resource"), r.Resource)
	if r.Resource != "" && !isResourceField(r.Resource) {
		v.add(field.NotSupported(at.Child("resource"), r.Resource, strings.Fields(resourceFields)))
	}
}

// divisor checks the divisor of a resource. The zero value means 1.
func (v *validator) divisor(at *field.Path, r *corev1.ResourceFieldSelector) {
	allowed := strings.Fields("1 1k 1M 1G 1T 1P 1E 1Ki 1Mi 1Gi 1Ti 1Pi 1Ei")
	if strings.HasSuffix(r.Resource, ".cpu") {
		allowed = []string{"1m", "1"}
	}
	if isResourceField(r.Resource) && !r.Divisor.IsZero() && !slices.Contains(allowed, r.Divisor.String()) {
		v.add(field.NotSupported(at, r.Divisor.String(), allowed))
	}
}
