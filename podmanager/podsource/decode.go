package podsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// maxDocuments bounds what one file can hold: what is wrong with each is a line in
// the log.
const maxDocuments = 100

// manifest is one pod as a file gives it: with defaults and identity, and without
// the time at which it was first seen.
type manifest struct {
	file     string
	document int
	pod      *corev1.Pod
}

// ownUID says whether the manifest has a UID, instead of one made from its content.
func (m manifest) ownUID() bool { return string(m.pod.UID) != m.pod.Annotations[HashAnnotation] }

// document is one of those in a file. Its text begins with as many empty lines as
// the file has before it, so that a parser counts lines as an editor does.
type document struct {
	number int
	text   []byte
}

// decodeFile returns the pods in data, which is the content of file, in order. If
// anything is wrong with any of them, it returns nothing but the problems.
func decodeFile(file string, data []byte, of origin) ([]manifest, []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	docs, toJSON := []document{{number: 1, text: data}}, checkJSON
	if strings.ToLower(filepath.Ext(file)) != ".json" {
		docs, toJSON = splitYAML(data), yamlToJSON
	}
	if len(docs) == 0 || len(bytes.TrimSpace(data)) == 0 {
		// A file that an editor has just truncated looks like this, so it is no
		// reason to end the pods that were in it.
		return nil, []Problem{{File: file, Err: errors.New("there is no manifest in the file")}}
	}
	if len(docs) > maxDocuments {
		return nil, []Problem{{File: file, Err: fmt.Errorf("%d documents in one file, at most %d are allowed", len(docs), maxDocuments)}}
	}
	var pods []manifest
	var problems []Problem
	for _, doc := range docs {
		pod, err := decodePod(doc.text, toJSON, of)
		if err != nil {
			problems = append(problems, Problem{File: file, Document: doc.number, Err: err})
			continue
		}
		pods = append(pods, manifest{file: file, document: doc.number, pod: pod})
	}
	if problems != nil {
		return nil, problems
	}
	return pods, nil
}

// decodePod makes a pod of a document: strictly decoded, completed, checked, and
// named for the node.
func decodePod(text []byte, toJSON func([]byte) ([]byte, error), of origin) (*corev1.Pod, error) {
	data, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	if err := checkKind(data); err != nil {
		return nil, err
	}
	errs := checkFields(data, reflect.TypeFor[corev1.Pod]())
	pod := new(corev1.Pod)
	if err := json.Unmarshal(data, pod); err != nil {
		if len(errs) == 0 {
			return nil, err
		}
		return nil, fieldErrors(errs) // which say more than err
	}
	hash := contentHash(pod, of)
	setDefaults(pod)
	if errs = append(errs, validatePod(pod, of.node)...); len(errs) > 0 {
		return nil, fieldErrors(errs)
	}
	setIdentity(pod, of.node, hash)
	return pod, nil
}

// checkKind tells a pod from anything else, before its fields are looked at.
func checkKind(data []byte) error {
	if kindOf(data) != "an object" {
		return fmt.Errorf("not a Pod: want an object, have %s", kindOf(data))
	}
	var head struct{ APIVersion, Kind any }
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name, want string
		have       any
	}{{"apiVersion", "v1", head.APIVersion}, {"kind", "Pod", head.Kind}} {
		switch path := field.NewPath(f.name); f.have {
		case f.want:
		case nil, "":
			errs = append(errs, field.Required(path, fmt.Sprintf("must be %q", f.want)))
		default:
			errs = append(errs, field.NotSupported(path, fmt.Sprint(f.have), []string{f.want}))
		}
	}
	if len(errs) > 0 {
		return fieldErrors(errs)
	}
	return nil
}

// splitYAML returns the documents of a YAML stream that hold more than comments.
func splitYAML(data []byte) (docs []document) {
	var text []byte
	empty, lines := true, 0
	flush := func() {
		if !empty {
			docs = append(docs, document{number: len(docs) + 1, text: text})
		}
		text, empty = nil, true
	}
	for line := range bytes.Lines(data) {
		if isMarker(line, "---") || isMarker(line, "...") {
			flush()
			line = append([]byte("   "), line[3:]...) // a document may begin behind its marker
		}
		if rest := bytes.TrimSpace(line); len(rest) > 0 && rest[0] != '#' {
			if empty {
				text = bytes.Repeat([]byte("\n"), lines)
			}
			empty = false
		}
		if !empty {
			text = append(text, line...)
		}
		lines++
	}
	flush()
	return docs
}

// isMarker says whether line is a document marker. YAML allows none inside of any
// scalar, so that lines are enough to go by.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// yamlToJSON refuses what is not YAML and keys that are given twice, which it names
// by line.
func yamlToJSON(text []byte) ([]byte, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return data, nil
}

// checkJSON refuses what is not one JSON value.
func checkJSON(text []byte) ([]byte, error) {
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	return raw, nil
}
