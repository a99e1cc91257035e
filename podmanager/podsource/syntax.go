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

// document is one of those in a file. Its text begins with as many empty lines as
// the file has before it, so that a parser counts lines as an editor does.
type document struct {
	number int
	text   []byte
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
	if err := checkAliases(text); err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		return data, nil
	}
	return nil, syntaxError("YAML", text, errors.New(strings.Join(strings.Fields(err.Error()), " ")))
}

// checkAliases refuses a YAML document in which aliases stand for so much that what it
// means is far longer than its text: 100 KB of YAML could ask for gigabytes of memory.
func checkAliases(text []byte) error {
	if !bytes.Contains(text, []byte("*")) {
		return nil
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(text, &doc); err != nil {
		return syntaxError("YAML", text, errors.New(strings.Join(strings.Fields(err.Error()), " ")))
	}
	limit := 2*len(text) + MaxManifestBytes // an escape stands for up to twice its length
	if size, ok := expandedSize(&doc, map[*yamlv3.Node]int{}, limit); !ok || size > limit {
		return fmt.Errorf("not valid YAML: aliases add more than %d bytes to the document", MaxManifestBytes)
	}
	return nil
}

// expandedSize returns how many bytes the values in a node have with each alias replaced
// by what it stands for, and at least one for each. It reports false for more than limit,
// and for a node that contains itself. Sizes has those of nodes that were seen before, -1
// for those around this one.
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

// checkJSON refuses what is not one JSON value.
func checkJSON(text []byte) ([]byte, error) {
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, syntaxError("JSON", text, err)
	}
	return raw, nil
}

// syntaxError is about text that cannot be decoded, so that nobody can know what it
// is. If it may be a ConfigMap or a Secret only the line is said: parsers quote what
// they read.
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
