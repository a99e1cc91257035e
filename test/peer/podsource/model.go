package podsource

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A held manifest is a document whose pod our source has.
type held struct {
	source
	step int // the step in which the document was read
	seen int // the step in which its UID was first seen
}

// A model computes which pods our source must have after each step, given the rejected files.
// Each file contributes the documents of its last valid version. If two documents have the
// same name or UID, only the first one counts.
type model struct {
	files map[string][]held // after the last step
	pods  []map[string]held // by step and name
}

// modelOf returns the model of the steps up to the scene's.
func modelOf(s scene) *model {
	m := &s.World.model
	for len(m.pods) <= s.Step {
		m.play(s.World, s.OursFacts, len(m.pods))
	}
	return m
}

// play adds a step.
func (m *model) play(w *world, ours []judge.Facts, at int) {
	before := map[string]held{}
	if at > 0 {
		before = m.pods[at-1]
	}
	now := w.Steps[at]
	if !readsStep(w, now) {
		m.pods = append(m.pods, maps.Clone(before))
		return
	}
	files := map[string][]held{}
	for _, f := range now.Files {
		switch {
		case !isManifest(w, f.Name):
		case refuses(ours, at, f.Name):
			files[f.Name] = m.files[f.Name]
		default:
			for doc := range f.Docs {
				files[f.Name] = append(files[f.Name], held{source: source{f, doc}, step: at, seen: at})
			}
		}
	}
	seen := map[string]int{}
	for _, h := range before {
		seen[h.identity()] = h.seen
	}
	pods, uids := map[string]held{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, h := range files[name] {
			pod, uid := w.podName(h.document()), h.uid()
			if _, taken := pods[pod]; taken || uid != "" && uids[uid] {
				continue
			}
			if first, known := seen[h.identity()]; known {
				h.seen = first
			}
			pods[pod], uids[uid] = h, true
		}
	}
	m.files, m.pods = files, append(m.pods, pods)
}

func (o source) document() any { return o.file.Docs[o.doc] }

// uid returns the manifest's own UID, empty if it has none.
func (o source) uid() string { return text(o.document(), "metadata", "uid") }

// identity is the input of a UID: the manifest's own UID, or the content.
func (o source) identity() string {
	if uid := o.uid(); uid != "" {
		return "uid " + uid
	}
	return contentOf(o.document())
}

// contentOf returns the content of a document from which our source derives the UID. YAML
// writes 1e2 as 100, and JSON cannot decode 1e2 as an integer.
func contentOf(doc any) string {
	var text strings.Builder
	toJSON(&text, doc)
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text.String(), "1e2", "100")), &pod); err != nil {
		return text.String()
	}
	return marshal(pod.ObjectMeta) + marshal(pod.Spec) + marshal(pod.Status)
}

// isModel reports whether our value of a fact about a pod is the model's value. The model's
// value is that of the document with the kubelet's defaults, also if the kubelet rejects the
// document. Rules about single values may change it.
func isModel(s scene) bool {
	pod, what, ok := podFact(s.Fact)
	if !ok {
		return false
	}
	m := modelOf(s)
	h, has := m.pods[s.Step][pod]
	if !has {
		return s.Ours == ""
	}
	var old held
	known := false
	if s.Step > 0 {
		old, known = m.pods[s.Step-1][pod]
	}
	switch what {
	case "uid changed", "hash changed":
		if !known {
			return s.Ours == "new"
		}
		if what == "uid changed" {
			return s.Ours == fmt.Sprint(old.identity() != h.identity())
		}
		return s.Ours == fmt.Sprint(contentOf(old.document()) != contentOf(h.document()))
	case seenPath:
		return s.Ours == marshal(s.World.timeOf(h.seen).Format("2006-01-02T15:04:05.000000000Z"))
	}
	would := s.World.would[h.step][documentPrefix(h.file.Name, h.doc)]
	s.KubeletFacts = append(slices.Clone(s.KubeletFacts[:s.Step]), would)
	s.Kubelet = would[s.Fact]
	return s.Kubelet == s.Ours || slices.ContainsFunc(slices.Concat(valueRules(), defaultRules()), func(r judge.Rule[*world]) bool { return r.Explains(s) })
}

const seenPath = ".metadata.annotations." + seenAnnotation

// lastRead returns the scene in the last step in which the source could be read. The pods of
// both sides come from there, except that the kubelet removes all pods if the directory is
// missing.
func lastRead(s scene) scene {
	for s.Step > 0 && !readsStep(s.World, s.World.Steps[s.Step]) {
		s.Step--
	}
	s.KubeletFacts, s.OursFacts = s.KubeletFacts[:s.Step+1], s.OursFacts[:s.Step+1]
	return s
}
