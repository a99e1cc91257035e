package kubeletconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/eviction"
)

// maxBytes is the maximum size of a configuration file.
const maxBytes = 1 << 20

// File is the parsed content of a configuration file.
type File struct {
	Settings Settings
	// Notes are hints for the author of the file, for example about ignored fields, insecure
	// settings, and settings that disable other settings.
	Notes []Problem
}

// Problem is a problem of a field, or a note about a field.
type Problem struct {
	// Line is the line in the file; the first line is 1. Line is 0 if the problem belongs to no
	// line.
	Line int
	// Field is the name of the field. It is empty if the problem is about the whole file.
	Field string
	// Text describes the problem.
	Text string
}

// Error returns the problem in the form "line 3: maxPods: what is wrong".
func (p Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Load reads a file. It makes relative paths absolute, based on the file's folder. The error
// joins all problems, each a [Problem] with the file's name in front.
func Load(file string) (File, error) { return load(file, Default) }

// LoadKubelet reads a file for an agent that joins a cluster in the place of a kubelet. Unlike
// [Load], it implements the fields of [ClusterSettings], and a field that is not set has the
// default of [Kubelet].
func LoadKubelet(file string) (File, error) { return load(file, Kubelet) }

func load(file string, defaults func() Settings) (File, error) {
	data, err := readSome(file)
	if err != nil {
		return File{}, fmt.Errorf("read configuration: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return File{}, fmt.Errorf("read configuration: %w", err)
	}
	f, err := parse(data, dir, defaults)
	if err != nil {
		var errs []error
		for _, e := range unjoin(err) {
			errs = append(errs, fmt.Errorf("%s: %w", file, e))
		}
		return File{}, errors.Join(errs...)
	}
	return f, nil
}

// makeAbsolute makes relative paths absolute, based on dir.
func (s *Settings) makeAbsolute(dir string) {
	for _, path := range []*string{&s.StaticPodPath, &s.TLSCertFile, &s.TLSPrivateKeyFile, &s.Authentication.X509.ClientCAFile, &s.ResolverConfig, &s.PodLogsDir} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// readSome reads a file of at most maxBytes.
func readSome(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("%s is longer than %d bytes", file, maxBytes)
	}
	return data, err
}

// Parse parses the content of a file. It does not change relative paths. The error joins every
// [Problem] of the content, ordered by line.
func Parse(data []byte) (File, error) { return parse(data, "", Default) }

// parse parses the content of a file. If dir is not empty, parse makes relative paths absolute,
// based on dir.
func parse(data []byte, dir string, defaults func() Settings) (File, error) {
	p := reader{settings: defaults(), defaults: defaults(), lines: map[string]int{}}
	if root := p.document(data); root != nil {
		p.object(root)
		p.header()
		p.derive()
		if dir != "" {
			p.settings.makeAbsolute(dir)
		}
		p.checked()
	}
	if len(p.problems) > 0 {
		return File{}, join(byLine(p.problems))
	}
	return File{Settings: p.settings, Notes: byLine(p.notes)}, nil
}

// YAML returns s as a complete configuration file.
func (s Settings) YAML() ([]byte, error) { return sigsyaml.Marshal(s) }

type reader struct {
	settings        Settings
	defaults        Settings
	lines           map[string]int // lines of the fields that are set
	problems, notes []Problem
}

func (p *reader) problem(line int, field, format string, args ...any) {
	p.problems = append(p.problems, Problem{line, field, fmt.Sprintf(format, args...)})
}

// document returns the mapping of the only document. If the content has no such mapping,
// document adds a problem and returns nil.
func (p *reader) document(data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		p.problem(0, "", "the file is empty")
		return nil
	case err != nil:
		p.problem(0, "", "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		p.problem(more.Line, "", "more than one document: want one %s", Kind)
		return nil
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		p.problem(doc.Line, "", "want the fields of a %s", Kind)
		return nil
	}
	return doc.Content[0]
}

// object reads the fields of the file.
func (p *reader) object(root *yaml.Node) {
	known, byDefault := map[string]field{}, map[string]any{}
	for _, f := range p.settings.fields() {
		known[f.name] = f
	}
	for _, f := range p.defaults.fields() {
		byDefault[f.name] = f.into
	}
	skipped, unsafe := ignored(), refused()
	for key, value := range p.pairs("", root) {
		name := key.Value
		p.lines[name] = key.Line
		f, ok := known[name]
		switch {
		case value.Tag == "!!null":
			delete(p.lines, name)
			if !ok && skipped[name] == "" && unsafe[name] == "" {
				p.problem(key.Line, name, "%s", unknown(name, known, skipped, unsafe))
			}
		case ok:
			p.assign(name, value, f.into)
			if f.zeroIsUnset && defaulted(f.into, byDefault[name]) {
				delete(p.lines, name)
			}
		case skipped[name] != "":
			p.notes = append(p.notes, Problem{key.Line, name, "ignored: " + skipped[name]})
		case unsafe[name] != "":
			p.problem(key.Line, name, "not implemented: %s", unsafe[name])
		default:
			p.problem(key.Line, name, "%s", unknown(name, known, skipped, unsafe))
		}
	}
}

// unknown describes an unknown field, and suggests a known name that only differs in case.
func unknown(name string, known map[string]field, more ...map[string]string) string {
	all := sets.KeySet(known)
	for _, m := range more {
		all = all.Union(sets.KeySet(m))
	}
	for _, other := range sets.List(all) {
		if strings.EqualFold(other, name) {
			return "unknown field: did you mean " + other + "?"
		}
	}
	return "unknown field"
}

// header checks apiVersion and kind.
func (p *reader) header() {
	for _, h := range []struct{ name, got, want string }{
		{"apiVersion", p.settings.APIVersion, APIVersion},
		{"kind", p.settings.Kind, Kind},
	} {
		if line, ok := p.lines[h.name]; !ok {
			p.problem(0, h.name, "missing: want %s", h.want)
		} else if h.got != h.want {
			p.problem(line, h.name, "%q: want %s", h.got, h.want)
		}
	}
}

// derive sets fields whose default depends on other fields, unless the file sets them. It also adds
// the notes about client certificates, cipher suites and disabled default thresholds.
func (p *reader) derive() {
	s := &p.settings
	if _, ok := p.lines["cgroupsPerQOS"]; !ok && s.CgroupRoot != "" {
		s.CgroupsPerQOS = true
	}
	if _, ok := p.lines["serializeImagePulls"]; !ok && s.MaxParallelImagePulls != nil && *s.MaxParallelImagePulls > 1 {
		s.SerializeImagePulls = false
	}
	s.defaultAccess(p.defaults)
	if s.ClusterSettings != nil && p.lines["nodeStatusUpdateFrequency"] > 0 && p.lines["nodeStatusReportFrequency"] == 0 {
		s.NodeStatusReportFrequency = s.NodeStatusUpdateFrequency
	}
	if s.Authorization.Mode == AlwaysAllow && p.lines["authorization"] == 0 && s.Authentication.X509.ClientCAFile != "" {
		p.notes = append(p.notes, Problem{
			p.lines["authentication"], "authentication",
			"each client with a certificate that this CA has signed has full access, including exec in containers: authorization.mode is AlwaysAllow unless it is set",
		})
	}
	for _, note := range s.tlsNotes() {
		p.notes = append(p.notes, Problem{p.lines["tlsCipherSuites"], "tlsCipherSuites", note})
	}
	line, ok := p.lines["evictionHard"]
	if !ok || len(s.EvictionHard) == 0 || s.MergeDefaultEvictionSettings {
		return
	}
	var lost []string
	for signal := range eviction.DefaultEvictionHard("") {
		if _, ok := s.EvictionHard[signal]; !ok {
			lost = append(lost, signal)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		p.notes = append(p.notes, Problem{line, "evictionHard", fmt.Sprintf(
			"the default thresholds of %s are disabled, so no pod is evicted for these signals: set mergeDefaultEvictionSettings to true to keep the defaults", strings.Join(lost, ", "))})
	}
}

// checked adds the problems of [Settings.Check]. It skips fields that already have a problem,
// because their values could not be read.
func (p *reader) checked() {
	unread := map[string]bool{}
	for _, bad := range p.problems {
		name, _, _ := strings.Cut(bad.Field, ".")
		name, _, _ = strings.Cut(name, "[")
		unread[name] = true
	}
	for _, bad := range p.settings.Check() {
		if bad.Line = p.lines[bad.Field]; !unread[bad.Field] {
			p.problems = append(p.problems, bad)
		}
	}
}

func byLine(all []Problem) []Problem {
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

func join(all []Problem) error {
	errs := make([]error, len(all))
	for i, p := range all {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// unjoin returns the joined errors.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
