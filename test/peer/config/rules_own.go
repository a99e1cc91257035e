package config

import (
	"slices"
	"strconv"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ownRules are about reports that only our package makes about a file.
func ownRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "line numbers of problems and notes", Class: judge.Deliberate, Doc: docPath,
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
		Name: "notes about TLS and authorization", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Ours adds a note to the File if clientCAFile is set and authorization is not, if a cipher suite is insecure, and if tlsCipherSuites has no effect because of tlsMinVersion.",
		Explains: func(s scene) bool {
			c := s.World.accepted
			_, authorized := s.World.value("authorization")
			switch s.Fact {
			case "remark authentication":
				return c.Authentication.X509.ClientCAFile != "" && !authorized
			case "remark tlsCipherSuites":
				return len(c.TLSCipherSuites) > 0 && (c.TLSMinVersion == "VersionTLS13" || slices.ContainsFunc(cliflag.InsecureTLSCipherNames(), func(name string) bool {
					return slices.Contains(c.TLSCipherSuites, name)
				}))
			default:
				return false
			}
		},
	}, {
		Name: "files above 1 MiB", Class: judge.Deliberate, Doc: docPath,
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

// lineOf returns the line number that our package reports for a field: the number of the
// first line that sets the field. It is 0 if the file does not set the field, or sets it to a
// value that counts as not set.
func lineOf(w *world, field string) string {
	lines := linesOf(w, field)
	value, _ := w.value(field)
	if len(lines) == 0 || fieldTypes()[field] != nil && (value == "null" || value == "~") {
		return "0"
	}
	return lines[0]
}
