package podsource

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// completeObject sets the fields that the API server would set, and returns the
// validation errors. The errors contain keys, but no values of the data.
func completeObject(object metav1.Object) field.ErrorList {
	if object.GetNamespace() == "" {
		object.SetNamespace(corev1.NamespaceDefault)
	}
	v := new(validator)
	v.objectMeta(object)
	switch o := object.(type) {
	case *corev1.ConfigMap:
		v.configMap(o)
	case *corev1.Secret:
		o.Type = cmp.Or(o.Type, corev1.SecretTypeOpaque)
		data := maps.Clone(o.Data)
		for key, text := range o.StringData {
			if data == nil {
				data = make(map[string][]byte)
			}
			data[key] = []byte(text)
		}
		o.Data, o.StringData = data, nil
		v.secret(o)
	}
	return v.errs
}

func (v *validator) objectMeta(object metav1.Object) {
	at := field.NewPath("metadata")
	v.named(at.Child("name"), object.GetName(), validation.IsDNS1123Subdomain)
	v.named(at.Child("namespace"), object.GetNamespace(), validation.IsDNS1123Label)
	v.add(metav1validation.ValidateLabels(object.GetLabels(), at.Child("labels"))...)
	v.annotations(at.Child("annotations"), object.GetAnnotations())
}

func (v *validator) annotations(at *field.Path, annotations map[string]string) {
	for _, key := range sortedKeys(annotations) {
		v.invalid(at, key, validation.IsQualifiedName(strings.ToLower(key))...)
	}
}

func (v *validator) configMap(m *corev1.ConfigMap) {
	for _, key := range sortedKeys(m.Data) {
		v.invalid(field.NewPath("data"), key, validation.IsConfigMapKey(key)...)
	}
	for _, key := range sortedKeys(m.BinaryData) {
		v.invalid(field.NewPath("binaryData"), key, validation.IsConfigMapKey(key)...)
		if _, ok := m.Data[key]; ok {
			v.add(field.Duplicate(field.NewPath("binaryData").Key(key), key))
		}
	}
}

func (v *validator) secret(s *corev1.Secret) {
	at := field.NewPath("data")
	for _, key := range sortedKeys(s.Data) {
		v.invalid(at, key, validation.IsConfigMapKey(key)...)
	}
	for _, key := range requiredKeys(s.Type) {
		data, ok := s.Data[key]
		switch isJSON := key == corev1.DockerConfigKey || key == corev1.DockerConfigJsonKey; {
		case !ok:
			v.add(field.Required(at.Key(key), fmt.Sprintf("the type is %s", s.Type)))
		case isJSON && !json.Valid(data):
			v.add(field.Invalid(at.Key(key), hidden, "must be JSON"))
		}
	}
}

// requiredKeys returns the keys that a Secret of this type must have.
func requiredKeys(t corev1.SecretType) []string {
	switch t {
	case corev1.SecretTypeDockercfg:
		return []string{corev1.DockerConfigKey}
	case corev1.SecretTypeDockerConfigJson:
		return []string{corev1.DockerConfigJsonKey}
	case corev1.SecretTypeSSHAuth:
		return []string{corev1.SSHAuthPrivateKey}
	case corev1.SecretTypeTLS:
		return []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
	default:
		return nil
	}
}
