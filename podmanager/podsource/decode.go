package podsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// maxDocuments limits the documents of one file, because the errors of each document are a
// line in the log.
const maxDocuments = 100

// manifest is one pod or one object of a file, with defaults. A pod has its name and UID on
// the node, but not the annotation kubernetes.io/config.seen yet.
type manifest struct {
	file     string
	document int
	pod      *corev1.Pod   // nil for an object
	object   metav1.Object // a ConfigMap or a Secret; nil for a pod
}

// hasOwnUID reports whether the UID is from the manifest and not computed from its content.
func (m manifest) hasOwnUID() bool {
	return m.pod != nil && string(m.pod.UID) != m.pod.Annotations[podspec.HashAnnotation]
}

func (m manifest) uid() types.UID {
	if m.pod == nil {
		return ""
	}
	return m.pod.UID
}

// kind returns the kind. Names are unique within a kind.
func (m manifest) kind() string {
	switch m.object.(type) {
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *corev1.Secret:
		return "Secret"
	default:
		return "Pod"
	}
}

func (m manifest) name() string { return m.meta().GetNamespace() + "/" + m.meta().GetName() }

func (m manifest) meta() metav1.Object {
	if m.pod == nil {
		return m.object
	}
	return m.pod
}

// decodeFile returns the manifests in data, the content of file, in order. If any of them
// is invalid, it returns only the problems.
func decodeFile(file string, data []byte, of origin) ([]manifest, []Problem) {
	if len(bytes.TrimSpace(data)) == 0 {
		// An editor may have truncated the file, to write it again. Because of the problem,
		// the pods that the file defined stay.
		return nil, []Problem{{File: file, Err: errors.New("the file contains no manifest")}}
	}
	return decodeText(file, data, strings.ToLower(filepath.Ext(file)) == ".json", of)
}

// decodeResponse is like decodeFile, for the response of a server, which may also be a
// PodList.
func decodeResponse(url string, data []byte, of origin) ([]manifest, []Problem) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, []Problem{{File: url, Err: errors.New("the response is empty")}}
	}
	isJSON := kindOf(data) == "an object"
	list := data
	if !isJSON {
		if err := checkAliases(data); err != nil {
			return nil, []Problem{{File: url, Err: err}}
		}
		list, _ = yaml.YAMLToJSON(data) // decodeText reports the error
	}
	var head struct{ Kind string }
	if json.Unmarshal(list, &head) != nil || head.Kind != "PodList" {
		return decodeText(url, data, isJSON, of)
	}
	return decodeList(url, list, of)
}

// decodeList returns the pods of a PodList. The items need not have a kind and an API
// version.
func decodeList(url string, data []byte, of origin) ([]manifest, []Problem) {
	type podList struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	var list podList
	err := error(nil)
	if errs := checkFields(data, reflect.TypeFor[podList](), false); len(errs) > 0 {
		err = fieldErrors(errs)
	} else if _, err = checkKind(data, []string{"PodList"}); err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, []Problem{{File: url, Err: err}}
	}
	var docs []document
	for i, item := range list.Items {
		docs = append(docs, document{number: i + 1, text: item})
	}
	of.kindless = true
	return decodeAll(url, docs, checkJSON, of)
}

func decodeText(file string, data []byte, isJSON bool, of origin) ([]manifest, []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	docs, toJSON := []document{{number: 1, text: data}}, checkJSON
	if !isJSON {
		docs, toJSON = splitYAML(data), yamlToJSON
	}
	switch {
	case len(docs) == 0:
		return nil, []Problem{{File: file, Err: errors.New("the file contains no manifest")}}
	case len(docs) > maxDocuments:
		return nil, []Problem{{File: file, Err: fmt.Errorf("the file has %d documents, more than the limit of %d", len(docs), maxDocuments)}}
	}
	return decodeAll(file, docs, toJSON, of)
}

// decodeAll returns the manifests of all documents. If any of them is invalid, it returns
// only the problems.
func decodeAll(file string, docs []document, toJSON func([]byte) ([]byte, error), of origin) ([]manifest, []Problem) {
	var manifests []manifest
	var problems []Problem
	for _, doc := range docs {
		m, err := decodeDocument(doc.text, toJSON, of)
		if err != nil && len(problems) >= maxDocuments {
			err = errors.New("this document is invalid too; the documents after it were not checked")
			return nil, append(problems, Problem{File: file, Document: doc.number, Err: err})
		}
		if err != nil {
			problems = append(problems, Problem{File: file, Document: doc.number, Err: err})
			continue
		}
		m.file, m.document = file, doc.number
		manifests = append(manifests, m)
	}
	if problems != nil {
		return nil, problems
	}
	return manifests, nil
}

// decodeDocument decodes a document strictly, sets defaults, and validates the pod or
// object.
func decodeDocument(text []byte, toJSON func([]byte) ([]byte, error), of origin) (manifest, error) {
	data, err := toJSON(text)
	if err != nil {
		return manifest{}, err
	}
	kinds := []string{"Pod"}
	if of.objects {
		kinds = append(kinds, "ConfigMap", "Secret")
	}
	kind, err := checkKind(data, kinds)
	if err != nil && (!of.kindless || !isKindless(data)) {
		return manifest{}, err
	}
	var m manifest
	switch kind {
	case "ConfigMap":
		m.object, err = decodeObject(data, new(corev1.ConfigMap))
	case "Secret":
		m.object, err = decodeObject(data, new(corev1.Secret))
	default:
		m.pod, err = decodePod(data, of)
	}
	return m, err
}

// decodePod decodes JSON to a static pod of the node.
func decodePod(data []byte, of origin) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	errs, err := decodeFields(data, pod, false)
	if err != nil {
		return nil, err
	}
	if errs = append(errs, completePod(pod, of)...); len(errs) > 0 {
		return nil, fieldErrors(errs)
	}
	return pod, nil
}

// decodeFields decodes JSON into a pod or an object. It returns an error in errs for each
// unknown and each duplicate field, and decodes all known fields, so that the caller can
// validate them too. If a value has a wrong type, it decodes nothing and returns err.
// Field names are case-sensitive: otherwise, a quantity in an unknown field "Limits" would
// be parsed without [quantity.Check].
func decodeFields(data []byte, into any, secret bool) (errs field.ErrorList, err error) {
	errs = checkFields(data, reflect.TypeOf(into).Elem(), secret)
	if slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Type != field.ErrorTypeForbidden }) {
		return nil, fieldErrors(errs)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		if secret {
			return nil, errors.New("cannot be decoded") // err may contain a value of the secret
		}
		return nil, err
	}
	return errs, nil
}

// completePod sets the defaults of a pod, and returns its validation errors. If the pod is
// valid, completePod also sets its identity: see setIdentity.
func completePod(pod *corev1.Pod, of origin) field.ErrorList {
	hash := contentHash(pod, of)
	setDefaults(pod)
	errs := validatePod(pod, of.node)
	if len(errs) == 0 {
		setIdentity(pod, of, hash)
	}
	return errs
}

// decodeObject decodes JSON into a ConfigMap or a Secret. Its errors name fields and keys,
// but contain no values of the data.
func decodeObject(data []byte, object metav1.Object) (metav1.Object, error) {
	errs, err := decodeFields(data, object, true)
	if err != nil {
		return nil, err
	}
	if errs = append(errs, completeObject(object)...); len(errs) > 0 {
		return nil, fieldErrors(errs)
	}
	return object, nil
}

// checkKind returns the manifest's kind, which must be one of the given kinds. It checks
// the kind and the API version only.
func checkKind(data []byte, kinds []string) (kind string, err error) {
	if kindOf(data) != "an object" {
		return "", fmt.Errorf("must be an object of kind %s, not %s", strings.Join(kinds, " or "), kindOf(data))
	}
	var head struct{ APIVersion, Kind any }
	if err := json.Unmarshal(data, &head); err != nil {
		return "", err
	}
	var errs field.ErrorList
	oneOf := func(path *field.Path, have any, want []string) string {
		text, _ := have.(string)
		switch {
		case slices.Contains(want, text):
			return text
		case have == nil || have == "":
			errs = append(errs, field.Required(path, fmt.Sprintf("must be %q", want[0])))
		default:
			errs = append(errs, field.NotSupported(path, fmt.Sprint(have), want))
		}
		return ""
	}
	oneOf(field.NewPath("apiVersion"), head.APIVersion, []string{"v1"})
	kind = oneOf(field.NewPath("kind"), head.Kind, kinds)
	if len(errs) > 0 {
		return "", fieldErrors(errs)
	}
	return kind, nil
}

// isKindless reports whether data is an object without kind and API version.
func isKindless(data []byte) bool {
	var head map[string]json.RawMessage
	if kindOf(data) != "an object" || json.Unmarshal(data, &head) != nil {
		return false
	}
	return head["apiVersion"] == nil && head["kind"] == nil
}
