package commands

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func (p Program) validateManifests() command {
	return command{
		name: "validate", args: "MANIFEST...", summary: "check manifests in files, in folders or on standard input (-); needs no agent",
		flags: func(*flag.FlagSet) {},
		run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return usagef("validate requires a file, a folder, or - for standard input: %s validate MANIFEST...", p.Name)
			}
			v, err := newValidator()
			if err != nil {
				return err
			}
			for _, arg := range args {
				if err := v.add(ctx, arg, p.stdin()); err != nil {
					return Usage(err)
				}
			}
			slices.SortStableFunc(v.problems, func(a, b manifestProblem) int {
				return cmp.Or(slices.Index(v.files, a.file)-slices.Index(v.files, b.file), a.line-b.line)
			})
			bad := map[string]bool{}
			for _, problem := range v.problems {
				bad[problem.file] = true
				fmt.Fprintln(p.Stdout, printable.Line(problem.String()))
			}
			for _, file := range v.files {
				if !bad[file] {
					fmt.Fprintln(p.Stdout, printable.Line(file+" is valid"))
				}
			}
			if len(v.problems) > 0 {
				return fmt.Errorf("%s in %s", plural(len(v.problems), "problem"), plural(len(bad), "file"))
			}
			return nil
		},
	}
}

// manifestProblem is a problem of a manifest. The line is 0 if it is unknown.
type manifestProblem struct {
	file string
	line int
	text string
}

// String returns the problem in the format FILE:LINE: TEXT of compilers.
func (m manifestProblem) String() string {
	if m.line == 0 {
		return m.file + ": " + m.text
	}
	return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.text)
}

// validator collects the problems of manifests.
type validator struct {
	runner   *podrunner.Runner // only its method Unsupported is used
	files    []string
	problems []manifestProblem
}

// newValidator returns a validator that supports the same fields of pods as the agent.
func newValidator() (*validator, error) {
	const root = "/" // nothing is created below it
	mounts, err := volumes.New(volumes.Config{Root: root, Objects: podsource.NewStore()})
	if err != nil {
		return nil, err
	}
	// The embedded interfaces are nil: Unsupported calls no method of the runtime.
	var runtime struct {
		podrunner.Sandboxes
		podrunner.Containers
		podrunner.Images
	}
	runner, err := podrunner.New(podrunner.Config{
		Sandboxes: runtime, Containers: runtime, Images: runtime, Volumes: mounts,
		Hooks: &lifecycle.HookRunner{}, UserIDs: &podrunner.IDRanges{}, // not used, but must be set
		Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return nil, errors.ErrUnsupported },
		Probes:  func(string) podrunner.ProbeResults { return podrunner.ProbeResults{} },
		Facts: func() podrunner.Facts {
			return podrunner.Facts{RuntimeHandler: func(class string) (string, error) { return class, nil }}
		},
		RootDir: root, Agent: "validate",
	})
	return &validator{runner: runner}, err
}

// add checks a file, the manifests of a folder, or standard input. It returns an error if arg can't be
// read.
func (v *validator) add(ctx context.Context, arg string, stdin io.Reader) error {
	if arg == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, podsource.MaxManifestBytes+1))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		return v.addText(ctx, "standard input", text)
	}
	info, err := os.Stat(arg)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return v.addFolder(ctx, arg, func(path string) string { return path })
	}
	text, err := os.ReadFile(arg)
	if err != nil {
		return err
	}
	return v.addText(ctx, arg, text)
}

// addText checks the text of a manifest. A [podsource.Directory] reads only folders, so addText
// writes the text to a temporary folder.
func (v *validator) addText(ctx context.Context, name string, text []byte) (err error) {
	dir, err := os.MkdirTemp("", "validate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ending := ".yaml"
	if strings.EqualFold(filepath.Ext(name), ".json") {
		ending = ".json"
	}
	file := filepath.Join(dir, "manifest"+ending)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	return v.addFolder(ctx, dir, func(string) string { return name })
}

// addFolder checks a folder as the agent reads it. The last argument is a function that returns the
// name of a file as problems show it.
func (v *validator) addFolder(ctx context.Context, dir string, shown func(path string) string) error {
	folder, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: dir, NodeName: "node", Store: podsource.NewStore()})
	if err != nil {
		return err
	}
	if _, err := folder.Load(ctx); err != nil {
		return err
	}
	found := map[string][]podsource.Problem{}
	for _, problem := range folder.Problems() {
		found[problem.File] = append(found[problem.File], problem)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		isManifest := slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))) && !strings.HasPrefix(e.Name(), ".") && !e.IsDir()
		if !isManifest && found[path] == nil {
			continue // the agent ignores the file
		}
		name := shown(path)
		v.files = append(v.files, name)
		text, err := os.ReadFile(path)
		if err != nil {
			v.problems = append(v.problems, manifestProblem{file: name, text: err.Error()})
			continue
		}
		v.addFile(name, documents(text), found[path], func(text string) string { return strings.ReplaceAll(text, path, name) })
		delete(found, path)
	}
	for path, problems := range found { // problems of the folder itself
		v.files = append(v.files, path)
		v.addFile(path, nil, problems, func(text string) string { return text })
	}
	return nil
}

// addFile adds the problems of one file.
func (v *validator) addFile(name string, docs []*yaml.Node, found []podsource.Problem, clean func(string) string) {
	add := func(line int, text string) {
		v.problems = append(v.problems, manifestProblem{file: name, line: line, text: clean(text)})
	}
	for _, problem := range found {
		doc := &yaml.Node{}
		if n := problem.Document; n > 0 && n <= len(docs) {
			doc = docs[n-1]
		}
		for _, err := range single(problem.Err) {
			if f, ok := errors.AsType[*field.Error](err); ok {
				add(lineOf(doc, f.Field), f.Error())
				continue
			}
			add(cmp.Or(lineInText(err.Error()), doc.Line), err.Error())
		}
	}
	for _, doc := range docs {
		pod, ok := podIn(doc)
		if !ok {
			continue
		}
		for _, err := range single(v.runner.Unsupported(&pod)) {
			path, _, _ := strings.Cut(err.Error(), ": ")
			add(lineOf(doc, path), "the agent would refuse the pod: "+err.Error())
		}
	}
}

// podIn returns the pod in a document. It returns false if the kind is not Pod, or if the document
// has fields with a wrong type. Package podsource reports such fields.
func podIn(doc *yaml.Node) (pod corev1.Pod, ok bool) {
	var value any
	if doc.Decode(&value) != nil {
		return pod, false
	}
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &pod) != nil {
		return pod, false
	}
	pod.UID = "validate"
	return pod, pod.Kind == "Pod"
}

// single returns the errors that err joins, or err itself.
func single(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, single(e)...)
	}
	return all
}

// documents returns the documents of a YAML or JSON file that are not empty, up to the first
// document that can't be parsed.
func documents(text []byte) (docs []*yaml.Node) {
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if decoder.Decode(&doc) != nil {
			return docs
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
			docs = append(docs, doc.Content[0])
		}
	}
}

// lineOf returns the line of the field with this path, such as spec.containers[0].image. If the field
// is missing, it returns the line of the nearest field around it.
func lineOf(node *yaml.Node, path string) int {
	line := node.Line
	for _, name := range elements(path) {
		key, value := child(node, name)
		if value == nil {
			break
		}
		line, node = key.Line, value
	}
	return line
}

// elements splits a path. Dots within brackets, as in limits[example.com/gpu], are part of a name.
func elements(path string) (all []string) {
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			name, after, closed := strings.Cut(rest, "]")
			if !closed {
				return all
			}
			all, path = append(all, name), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(all, path)
		}
		all = append(all, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return all
}

// child returns the field of a mapping or the item of a list. For an item, the key is the item itself.
func child(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	default: // a scalar has no children
	}
	return nil, nil
}

// lineInText returns the line number that an error of the YAML parser contains, or 0.
func lineInText(text string) int {
	_, rest, found := strings.Cut(text, "line ")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
