package podsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// document is one document of a file. Its text begins with as many empty lines as there are
// lines before it in the file, so that a parser reports the line numbers of the file.
type document struct {
	number int
	text   []byte
}

// splitYAML returns the documents of a YAML stream, without empty documents and documents
// that have only comments.
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
			line = append([]byte("   "), line[3:]...) // a document may begin on the line of its marker
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

// isMarker reports whether line is a document marker. YAML allows no marker inside a
// scalar, so the line alone decides.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// yamlToJSON converts YAML to JSON. It rejects duplicate keys, and most of its errors have
// line numbers.
func yamlToJSON(text []byte) ([]byte, error) {
	if err := checkAliases(text); err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		return data, nil
	}
	return nil, syntaxError("YAML", text, errors.New(strings.Join(strings.Fields(err.Error()), " ")))
}

// checkAliases rejects a YAML document that becomes much larger when its aliases are
// expanded. Without this check, 100 KB of YAML could need gigabytes of memory.
func checkAliases(text []byte) error {
	if !bytes.Contains(text, []byte("*")) {
		return nil
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(text, &doc); err != nil {
		return syntaxError("YAML", text, errors.New(strings.Join(strings.Fields(err.Error()), " ")))
	}
	limit := 2*len(text) + MaxManifestBytes // an escape sequence can decode to twice its length
	if size, ok := expandedSize(&doc, map[*yamlv3.Node]int{}, limit); !ok || size > limit {
		return fmt.Errorf("not valid YAML: aliases add more than %d bytes to the document", MaxManifestBytes)
	}
	return nil
}

// expandedSize returns the size in bytes of the values in a node after all aliases are
// expanded, counting at least one byte per node. It returns false if the size is above
// limit, or if a node contains itself. sizes has the sizes of the nodes visited before, and
// -1 for the ancestors of n.
func expandedSize(n *yamlv3.Node, sizes map[*yamlv3.Node]int, limit int) (size int, ok bool) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if size, seen := sizes[n]; seen {
		return size, size >= 0
	}
	sizes[n] = -1
	size = 1 + len(n.Value)
	for _, c := range n.Content {
		part, ok := expandedSize(c, sizes, limit)
		if size += part; !ok || size > limit {
			return 0, false
		}
	}
	sizes[n] = size
	return size, true
}

// checkJSON returns text if it is exactly one JSON value.
func checkJSON(text []byte) ([]byte, error) {
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, syntaxError("JSON", text, err)
	}
	return raw, nil
}

// syntaxError returns an error for text that cannot be decoded. If the text may be a
// ConfigMap or a Secret, the error contains at most the line number of err, because err may
// quote the data.
func syntaxError(language string, text []byte, err error) error {
	isObject := regexp.MustCompile(`\bkind["']?\s*:\s*["']?(Secret|ConfigMap)\b`)
	isPod := regexp.MustCompile(`\bkind["']?\s*:\s*["']?Pod`)
	hasData := regexp.MustCompile(`\b(data|stringData|binaryData)["']?\s*:`)
	if !isObject.Match(text) && (isPod.Match(text) || !hasData.Match(text)) {
		return fmt.Errorf("not valid %s: %w", language, err)
	}
	if line := regexp.MustCompile(`line \d+`).FindString(err.Error()); line != "" {
		return fmt.Errorf("not valid %s: %s", language, line)
	}
	return fmt.Errorf("not valid %s", language)
}
