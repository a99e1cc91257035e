package config

import (
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ownRules are about what only ours says of a file.
func ownRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "lines", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Ours reports the line of each problem, and of each note about a field; the kubelet reports no lines.",
		Explains: func(s scene) bool {
			if field, ok := strings.CutPrefix(s.Fact, "again "); ok {
				lines := linesOf(s.World, field)
				return len(lines) > 1 && s.Kubelet == "" && s.Ours == strings.Join(lines[1:], " ")
			}
			field, ok := strings.CutPrefix(s.Fact, "line ")
			return ok && s.Kubelet == "" && s.Ours == lineOf(s.World, field)
		},
	}, {
		Name: "long files", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads a file of any length; ours refuses a file above 1 MiB.",
		Explains: func(s scene) bool {
			if len(s.World.text()) <= longest {
				return false
			}
			_, refused := refusal(s)
			return s.Fact == "text" && s.Ours == "read configuration: FILE is longer than 1048576 bytes" ||
				s.Fact == "decode" && s.Kubelet == "" && s.Ours == "refused" || refused && s.Kubelet != "" && s.Ours == ""
		},
	}}
}

// linesOf returns the lines of a file that set a field.
func linesOf(w *world, field string) (all []string) {
	for i, l := range w.Lines {
		if l.Name == field {
			all = append(all, strconv.Itoa(i+1))
		}
	}
	return all
}

// lineOf returns the line that ours names for a field: the first that sets it, and 0
// if it is not set, or set to what counts as not set.
func lineOf(w *world, field string) string {
	lines := linesOf(w, field)
	value, _ := w.value(field)
	if len(lines) == 0 || fieldTypes()[field] != nil && (value == "null" || value == "~") {
		return "0"
	}
	return lines[0]
}
