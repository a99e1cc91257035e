package podsource

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a source of static pods over some steps.
type world struct {
	Node  string
	HTTP  bool
	Steps []step

	// would is the facts about the pods of documents as the kubelet decodes them, by step and
	// document, for accepted and rejected documents.
	would []map[string]judge.Facts
	model model // model of our source, computed on demand
}

// A step is the state of the source when both sides read it.
type step struct {
	After   int     // seconds since the previous step
	Missing bool    // the folder does not exist
	Files   []file  // sorted by name; for an HTTP server: its response
	Entries []entry // other directory entries
	Status  int     // HTTP status; 0 if the request fails
}

// An entry has the name of a manifest, and is not one.
type entry struct {
	Name string
	Kind string // directory, link to a directory, dangling link, loop, pipe
}

// A file is a file with documents, or a response.
type file struct {
	Name string
	Docs []any
	// Form is the format of the documents.
	Form form
	// Head and Tail enclose the text. Cut is the number of bytes removed from its end.
	Head, Tail string
	Cut        int
	// Link is set if the file is a symbolic link to a file elsewhere.
	Link bool
}

type form int

const (
	asYAML form = iota
	asJSON
	asList // a PodList in JSON
)

// text returns the content of a file.
func (f file) text() string {
	var b strings.Builder
	b.WriteString(f.Head)
	switch f.Form {
	case asList:
		toJSON(&b, f.listOf())
	case asJSON:
		for _, doc := range f.Docs {
			toJSON(&b, doc)
		}
	default:
		for i, doc := range f.Docs {
			b.WriteString(yamlOf(doc, i > 0))
		}
	}
	b.WriteString(f.Tail)
	s := b.String()
	return s[:max(len(s)-f.Cut, 0)]
}

func (f file) listOf() *object {
	return &object{members: []member{{"apiVersion", "v1"}, {"kind", "PodList"}, {"items", &list{items: f.Docs}}}}
}

// yamlOf returns a document, with a marker before it if it is not the first.
func yamlOf(doc any, marked bool) string {
	var b strings.Builder
	if marked {
		b.WriteString("---\n")
	}
	var body strings.Builder
	toYAML(&body, doc, "")
	b.WriteString(strings.TrimLeft(body.String(), " \n"))
	return b.String()
}

// documentText returns one document as a separate file.
func (f file) documentText(i int) string {
	if f.Form == asYAML {
		return yamlOf(f.Docs[i], false)
	}
	var b strings.Builder
	doc := f.Docs[i]
	if o, ok := doc.(*object); ok && f.Form == asList && get(o, "kind") == nil && get(o, "apiVersion") == nil {
		o = clone(o).(*object)
		o.set("apiVersion", "v1")
		o.set("kind", "Pod")
		doc = o
	}
	toJSON(&b, doc)
	return b.String()
}

// whole reports whether the text consists of the documents only.
func (f file) whole() bool { return f.Cut == 0 && f.Tail == "" && f.Head == "" }

func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s, HTTP %t\n", w.Node, w.HTTP)
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: after %d s, missing %t, status %d, besides files %v\n", i, s.After, s.Missing, s.Status, s.Entries)
		for _, f := range s.Files {
			fmt.Fprintf(&b, "--- %s\n%s\n", f.Name, f.text())
		}
	}
	return b.String()
}

func newWorld(d *judge.Draw) *world {
	w := &world{Node: judge.Pick(d, "node", "n.example.com"), HTTP: d.Chance(25)}
	pods := 0
	var files []file
	if w.HTTP {
		files = []file{newAnswer(d, &pods)}
	} else {
		for range d.Between(1, 2) {
			files = addFile(d, files, &pods)
		}
	}
	for i := range judge.Pick(d, 1, 1, 2, 3, 4) {
		if i > 0 {
			files = nextFiles(d, w.HTTP, files, &pods)
		}
		s := step{Files: slices.Clone(files), Status: 200, After: judge.Pick(d, 10, 10, 2, 1)}
		if !w.HTTP && d.Chance(10) {
			s.Entries = []entry{{Name: judge.Pick(d, "z.yaml", "z.JSON"), Kind: judge.Pick(d, "directory", "symlink to a directory", "dangling symlink", "symlink loop", "named pipe")}}
		}
		if i > 0 && d.Chance(8) {
			s.Missing = !w.HTTP
			s.Status = judge.Pick(d, 500, 404, 0)
		}
		w.Steps = append(w.Steps, s)
	}
	w.Steps = w.Steps[:w.distinct()]
	return w
}

// distinct returns how many steps a world has before two documents define one name or UID. It
// returns at least 1. Two pods with one name are compared in one step only: over several steps, the
// result depends on the order of all earlier events.
func (w *world) distinct() int {
	held := map[string]map[string]bool{} // definitions of each file so far
	for i, s := range w.Steps {
		holder := map[string]string{}
		for _, f := range s.Files {
			mine := held[f.Name]
			if mine == nil {
				mine = map[string]bool{}
				held[f.Name] = mine
			}
			seen := map[string]bool{}
			for _, doc := range f.Docs {
				here := []string{w.podName(doc)}
				if uid := text(doc, "metadata", "uid"); uid != "" {
					here = append(here, "uid "+uid)
				}
				for _, key := range here {
					if seen[key] {
						return max(i, 1)
					}
					seen[key], mine[key] = true, true
				}
			}
			for key := range mine {
				if other, ok := holder[key]; ok && other != f.Name {
					return max(i, 1)
				}
				holder[key] = f.Name
			}
		}
	}
	return len(w.Steps)
}

// nextFiles returns the files of the next step.
func nextFiles(d *judge.Draw, http bool, files []file, pods *int) (next []file) {
	for _, f := range files {
		switch d.Int(8) {
		case 0, 1: // unchanged
		case 2, 3:
			if f.whole() {
				f = edit(d, f)
			}
		case 4:
			if http {
				f = newAnswer(d, pods)
				break
			}
			f.Name = judge.Pick(d, "r", "A") + f.Name // renamed
		case 5:
			f.Form = judge.Pick(d, asJSON, asYAML)
			if !http {
				f.Name = withSuffix(f.Name, f.Form)
			}
			if len(f.Docs) > 1 && f.Form == asJSON {
				f.Docs = f.Docs[:1]
			}
		case 6:
			for i := range f.Docs {
				f.Docs = slices.Clone(f.Docs)
				f.Docs[i] = simple(f.Name, i)
			}
			f.Cut = judge.Pick(d, 1, 2, 20)
		default:
			if !http {
				continue // removed
			}
			f.Docs = f.Docs[:len(f.Docs)/2]
			f.Form = asList
		}
		next = append(next, f)
	}
	if !http && d.Chance(25) {
		next = addFile(d, next, pods)
	}
	slices.SortFunc(next, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(next, func(a, b file) bool { return a.Name == b.Name })
}

func withSuffix(name string, f form) string {
	stem, suffix, _ := strings.Cut(name, ".")
	switch {
	case suffix == "txt":
		return name
	case f == asJSON:
		return stem + ".json"
	default:
		return stem + ".yaml"
	}
}

// edit returns f with a change of a document.
func edit(d *judge.Draw, f file) file {
	if len(f.Docs) == 0 {
		return f
	}
	f.Docs = slices.Clone(f.Docs)
	i := d.Int(len(f.Docs))
	f.Docs[i] = clone(f.Docs[i])
	pod, ok := f.Docs[i].(*object)
	meta, hasMeta := get(f.Docs[i], "metadata").(*object)
	spec, hasSpec := get(f.Docs[i], "spec").(*object)
	switch n := d.Int(6); {
	case n == 0 && hasSpec:
		spec.set("terminationGracePeriodSeconds", number(strconv.Itoa(d.Between(5, 9))))
	case n == 1 && hasSpec:
		spec.set("schedulerName", "default-scheduler") // the default
	case n == 2 && hasMeta:
		meta.set("labels", &object{members: []member{{"edited", judge.Pick[any](d, "a", "b")}}})
	case n == 3 && hasMeta:
		meta.set("name", text(meta, "name")+"x")
	case n == 4 && ok:
		pod.set("status", &object{members: []member{{"message", judge.Pick[any](d, "m", "n")}}})
	default:
		breakOne(d, f.Docs[i], reflect.TypeFor[corev1.Pod]())
	}
	return f
}

func addFile(d *judge.Draw, files []file, pods *int) []file {
	f := file{Form: judge.Pick(d, asYAML, asJSON)}
	f.Name = withSuffix(judge.Pick(d, "a", "b", "c", "d")+".x", f.Form)
	switch {
	case d.Chance(5):
		f.Name = judge.Pick(d, ".hidden.yaml", "notes.txt", "UPPER.YML")
		f.Form = asYAML
	}
	switch {
	case slices.ContainsFunc(files, func(o file) bool { return o.Name == f.Name }):
		return files
	}
	f.Link = d.Chance(8)
	n := 1
	if f.Form == asYAML && d.Chance(8) {
		n = d.Between(2, 3)
	}
	for range n {
		f.Docs = append(f.Docs, newDoc(d, pods))
	}
	frame(d, &f)
	files = append(files, f)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
	return files
}

// frame adds text around the documents of a few files, which are simple then.
func frame(d *judge.Draw, f *file) {
	if !d.Chance(10) {
		return
	}
	for i := range f.Docs {
		f.Docs[i] = simple(f.Name, i)
	}
	switch d.Int(8) {
	case 0:
		f.Head = "# *comment\n" // not a YAML alias
	case 1:
		f.Head = "---\n"
	case 2:
		f.Tail = judge.Pick(d, "\n---\n", "\n...", "\n---\n# end\n", "\n---\nx: [\n", "\n...\nx")
	case 3:
		f.Tail = judge.Pick(d, "}", "x", "\n- x\n", "\n{}", "\n# end")
	case 4:
		if f.Docs = nil; f.Form == asYAML && len(f.Name)%2 == 0 {
			f.Tail = "# nothing\n"
		}
	case 5:
		f.Head = "\ufeff"
	case 6:
		f.Head = " \n\n"
	default:
		f.Cut = judge.Pick(d, 1, 10)
	}
}

// simple returns a valid minimal manifest.
func simple(file string, i int) any {
	name := "simple-" + strings.ToLower(strings.ReplaceAll(strings.Trim(file, "."), ".", "-")) + strconv.Itoa(i)
	container := &object{members: []member{{"name", "c"}, {"image", "nginx"}}}
	return &object{members: []member{
		{"apiVersion", "v1"},
		{"kind", "Pod"},
		{"metadata", &object{members: []member{{"name", name}}}},
		{"spec", &object{members: []member{{"containers", &list{items: []any{container}}}}}},
	}}
}

func newAnswer(d *judge.Draw, pods *int) file {
	f := file{Name: "answer", Form: judge.Pick(d, asJSON, asYAML, asList, asList)}
	n := 1
	if f.Form == asList {
		n = d.Int(4)
	}
	for range n {
		doc := newDoc(d, pods)
		if o, ok := doc.(*object); ok && f.Form == asList && d.Chance(80) {
			o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.key == "kind" || m.key == "apiVersion" })
		}
		f.Docs = append(f.Docs, doc)
	}
	frame(d, &f)
	return f
}

// newDoc returns a manifest: a pod, mostly with one or two mistakes.
func newDoc(d *judge.Draw, pods *int) any {
	*pods++
	name := "pod" + strconv.Itoa(*pods)
	if d.Chance(9) {
		name = "pod1" // another pod can have this name
	}
	pod := drawPod(d, name)
	doc, err := treeOf(pod)
	if err != nil {
		panic(err)
	}
	for range judge.Pick(d, 0, 1, 1, 2) {
		breakOne(d, doc, reflect.TypeFor[corev1.Pod]())
	}
	if spec, ok := get(doc, "spec").(*object); ok && d.Chance(3) {
		spec.set(judge.Pick(d, "dnsPolicy", "restartPolicy"), judge.Pick(d, "Sometimes", "always"))
	}
	return doc
}

// timeOf returns the time of a step.
func (w *world) timeOf(step int) time.Time {
	seconds := 0
	for _, s := range w.Steps[:step+1] {
		seconds += s.After
	}
	return time.Date(2000, 1, 1, 0, 0, seconds, 0, time.UTC)
}

// podName returns the name of a document's pod on the node.
func (w *world) podName(doc any) string {
	namespace := text(doc, "metadata", "namespace")
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	return namespace + "/" + text(doc, "metadata", "name") + "-" + strings.ToLower(w.Node)
}

// marshal is for facts.
func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
