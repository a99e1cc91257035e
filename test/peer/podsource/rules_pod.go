package podsource

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// podFact splits a fact about a pod.
func podFact(fact string) (pod, what string, ok bool) {
	rest, ok := strings.CutPrefix(fact, "pod ")
	pod, what, _ = strings.Cut(rest, " ")
	return pod, what, ok
}

// isManifest reports whether ours reads a file of this name.
func isManifest(w *world, name string) bool {
	if w.HTTP {
		return true
	}
	name = strings.ToLower(name)
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json"))
}

// A source is a document that defines a pod.
type source struct {
	file file
	doc  int
}

// sourcesOf returns the documents of a step that define a pod.
func sourcesOf(w *world, step int, pod string) []source {
	return sourcesWith(w, step, func(doc any) bool { return w.podName(doc) == pod })
}

// sourcesOfUID returns the documents of a step that define a pod with a UID.
func sourcesOfUID(w *world, step int, uid string) []source {
	return sourcesWith(w, step, func(doc any) bool { return text(doc, "metadata", "uid") == uid })
}

func sourcesWith(w *world, step int, fits func(doc any) bool) (all []source) {
	if step < 0 || !readsStep(w, w.Steps[step]) {
		return nil
	}
	for _, f := range w.Steps[step].Files {
		for i, doc := range f.Docs {
			if fits(doc) && !strings.HasPrefix(f.Name, ".") {
				all = append(all, source{f, i})
			}
		}
	}
	return all
}

// definedTwice reports whether another document has defined the pod of a fact's document, in
// this step or before.
func definedTwice(s scene) bool {
	now, i, _, _ := fileOf(s)
	for step := range s.Step + 1 {
		for _, f := range s.World.Steps[step].Files {
			if f.Name == now.Name && i < len(f.Docs) && defined(s.World, s.Step, s.World.podName(f.Docs[i])) > 1 {
				return true
			}
		}
	}
	return false
}

// definedUID counts the documents that have defined a UID so far.
func definedUID(w *world, step int, uid string) int {
	all := map[string]bool{}
	for i := range step + 1 {
		for _, f := range w.Steps[i].Files {
			for n, doc := range f.Docs {
				if text(doc, "metadata", "uid") == uid {
					all[documentPrefix(f.Name, n)] = true
				}
			}
		}
	}
	return len(all)
}

// defined counts the documents that have defined a pod so far. Our source keeps the documents
// of a file that has become invalid.
func defined(w *world, step int, pod string) int {
	all := map[string]bool{}
	for i := range step + 1 {
		for _, o := range sourcesOf(w, i, pod) {
			all[documentPrefix(o.file.Name, o.doc)] = true
		}
	}
	return len(all)
}

// refuses reports whether a side has a problem with a file in a step.
func refuses(facts []judge.Facts, step int, name string) bool {
	for fact, value := range facts[step] {
		if value != "" && (strings.HasPrefix(fact, "file "+name+"#") || strings.HasPrefix(fact, "file "+name+" ")) && !strings.HasSuffix(fact, " reference") && !strings.Contains(fact, " taken ") {
			return true
		}
	}
	return false
}

// hasPod reports whether a side has a pod in a step.
func hasPod(facts []judge.Facts, step int, pod string) bool {
	return step >= 0 && facts[step]["pod "+pod+" uid"] != ""
}

// otherPod reports whether another pod has a UID.
func otherPod(facts judge.Facts, pod, uid string) bool {
	for fact, value := range facts {
		other, what, ok := podFact(fact)
		if ok && what == "uid" && value == uid && other != pod {
			return true
		}
	}
	return false
}

// keepsOld reports whether our source rejects, or has rejected, a file that defines a pod or
// its UID, or still has the pod from an earlier version.
func keepsOld(s scene, pod string) bool {
	return slices.ContainsFunc(s.World.Steps[s.Step].Files, func(f file) bool {
		if !refuses(s.OursFacts, s.Step, f.Name) {
			return false
		}
		uid := s.KubeletFacts[s.Step]["pod "+pod+" uid"]
		sameUID := slices.ContainsFunc(f.Docs, func(doc any) bool { return uid != "" && text(doc, "metadata", "uid") == uid })
		if s.World.HTTP || sameUID || modelOf(s).pods[s.Step][pod].file.Name == f.Name {
			return true
		}
		for step := range s.Step + 1 {
			if slices.ContainsFunc(sourcesOf(s.World, step, pod), func(o source) bool { return o.file.Name == f.Name }) {
				return true
			}
		}
		return false
	})
}

func podRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "files without a manifest extension", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads every file whose name does not begin with a dot; ours reads only files whose names end in .yaml, .yml or .json.",
		Explains: func(s scene) bool {
			if f, _, _, ok := fileOf(s); ok {
				return s.Ours == "" && !isManifest(s.World, f.Name)
			}
			pod, _, ok := podFact(s.Fact)
			sources := sourcesOf(s.World, s.Step, pod)
			if len(sources) == 0 { // the kubelet keeps the first name of a UID
				sources = sourcesOfUID(s.World, s.Step, s.KubeletFacts[s.Step]["pod "+pod+" uid"])
			}
			return ok && isModel(s) && s.Ours == "" && len(sources) > 0 && !slices.ContainsFunc(sources, func(o source) bool { return isManifest(s.World, o.file.Name) })
		},
	}, {
		Name: "unknown and repeated fields", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ignores unknown fields, and uses the last value of a duplicate field; ours rejects the manifest and lists each such field.",
		Explains: func(s scene) bool {
			_, doc, what, ok := fileOf(s)
			if !ok || doc < 0 || s.Kubelet != "" {
				return false
			}
			strict := strictOf(document(s))
			if what == "verdict" {
				return s.Ours == "refused" && len(strict) > 0
			}
			path, ok := strings.CutPrefix(what, "strict ")
			return ok && s.Ours == strict[path]
		},
	}, {
		Name: "pods of an invalid file", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet terminates the pods of a file that has become invalid; ours rejects a file as a whole if anything in it is invalid, and its pods stay as they were.",
		Explains: func(s scene) bool {
			pod, _, ok := podFact(s.Fact)
			return ok && isModel(s) && keepsOld(lastRead(s), pod)
		},
	}, {
		Name: "missing directory or empty response", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet terminates all pods of a folder that does not exist and of an empty response; ours keeps them until the folder can be read or a valid response arrives.",
		Explains: func(s scene) bool {
			_, _, ok := podFact(s.Fact)
			now := s.World.Steps[s.Step]
			away := !s.World.HTTP && now.Missing || s.World.HTTP && now.Status == http.StatusOK && now.Files[0].text() == ""
			return ok && away && s.Kubelet == "" && isModel(s)
		},
	}, {
		Name: "references to API objects", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet refuses a static pod that refers to an object of the API server; ours accepts it, because a Store can have ConfigMaps and Secrets from manifests.",
		Explains: func(s scene) bool {
			_, _, what, ok := fileOf(s)
			return ok && what == "reference" && s.Kubelet != "" && s.Ours == ""
		},
	}}
}

// manyRules are about several documents, and documents whose name has changed.
func manyRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "several documents in a file", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ignores what follows the first document of a file; ours reads all documents, and refuses the file if one document is invalid.",
		Explains: func(s scene) bool {
			if f, doc, what, ok := fileOf(s); ok && doc < 0 && what == "text" {
				_, after, marked := strings.Cut(strings.ReplaceAll(f.text()[min(3, len(f.text())):], "\n...", "\n---"), "\n---")
				return marked && strings.Trim(after, "-\n ") != "" && s.Kubelet == "" && s.Ours == "refused"
			}
			pod, _, ok := podFact(s.Fact)
			h := modelOf(s).pods[s.Step][pod]
			return ok && h.doc > 0 && h.file.Form == asYAML && !hasPod(s.KubeletFacts, s.Step, pod) && isModel(s)
		},
	}, {
		Name: "YAML in JSON files", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads every file as YAML; ours reads a file that ends in .json, or a response that begins with a brace, as JSON.",
		Explains: func(s scene) bool {
			f, _, what, ok := fileOf(s)
			text := f.text()
			return ok && what == "text" && s.Kubelet == "" && s.Ours == "refused" && !json.Valid([]byte(text)) &&
				(strings.HasSuffix(strings.ToLower(f.Name), ".json") || s.World.HTTP && strings.HasPrefix(strings.TrimSpace(text), "{"))
		},
	}, {
		Name: "same pod name in two files", Class: judge.Deliberate, Doc: docPath,
		Sentence: "If two files define a pod with the same name, the kubelet uses the pod of the last file; ours uses the pod of the first file, and reports the other pod as a problem.",
		Explains: func(s scene) bool {
			if _, _, what, ok := fileOf(s); ok && what == "taken metadata.uid" {
				return s.Kubelet == "" && s.Ours == "yes" && definedUID(s.World, s.Step, text(document(s), "metadata", "uid")) > 1
			} else if ok && what == "taken metadata.name" {
				return s.Kubelet == "" && s.Ours == "yes" && definedTwice(s)
			}
			pod, _, ok := podFact(s.Fact)
			sources := sourcesOf(s.World, lastRead(s).Step, pod)
			return ok && isModel(s) && (len(sources) > 1 || slices.ContainsFunc(sources, func(o source) bool {
				return o.uid() != "" && definedUID(s.World, s.Step, o.uid()) > 1
			}))
		},
	}, {
		Name: "new name with the same UID", Class: judge.KubeletDefect, Doc: docPath, Ends: true,
		Sentence: "If the name or the self link in a manifest with a UID changes, the kubelet keeps the old name or self link of the pod; ours uses the new one.",
		Explains: func(s scene) bool {
			pod, what, ok := podFact(s.Fact)
			if !ok || s.Step == 0 {
				return false
			}
			if what == ".metadata.selfLink" {
				kept := s.Kubelet == s.KubeletFacts[s.Step-1][s.Fact]
				return kept && s.KubeletFacts[s.Step]["pod "+pod+" uid"] != "derived" && isModel(s)
			}
			if hasPod(s.KubeletFacts, s.Step, pod) {
				uid := s.KubeletFacts[s.Step]["pod "+pod+" uid"]
				return s.Ours == "" && uid != "derived" && otherPod(s.OursFacts[s.Step], pod, uid)
			}
			uid := s.OursFacts[s.Step]["pod "+pod+" uid"]
			return uid != "derived" && otherPod(s.KubeletFacts[s.Step], pod, uid) && isModel(s)
		},
	}, {
		Name: "pods of a repaired file", Class: judge.Deliberate, Doc: docPath,
		Sentence: "When a file is valid again, its pods are new to the kubelet, which had terminated them; in ours they are the same pods as before.",
		Explains: func(s scene) bool {
			_, what, _ := podFact(s.Fact)
			isNew := s.Kubelet == "new" && s.Ours != "" || s.Ours == "new" && s.Kubelet != ""
			return strings.HasSuffix(what, " changed") && isNew && isModel(s)
		},
	}}
}

// identityRules are about which pods each side treats as the same.
func identityRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "pod UID from content only", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet computes the UID of a pod from the path of its file and from its content with the defaults; ours computes it from the content only, as written, so that a renamed file defines the same pod.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			return hasPod(s.KubeletFacts, s.Step, pod) && (what == "hash changed" || what == "uid changed" || what == seenPath) && isModel(s)
		},
	}}
}

// valueRules are about single values of a pod that both sides have.
func valueRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "kind and apiVersion of pods", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet's pods have no kind and no API version; our pods have the kind and the API version of the manifest.",
		Explains: func(s scene) bool {
			_, what, _ := podFact(s.Fact)
			return s.Kubelet == "" && (what == ".kind" && s.Ours == `"Pod"` || what == ".apiVersion" && s.Ours == `"v1"`)
		},
	}, {
		Name: "config.hash of manifests with UID", Class: judge.Deliberate, Doc: docPath,
		Sentence: "If a manifest has a UID, the kubelet's annotation config.hash is that UID, even when the content changes; in ours the annotation changes with the content.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			return what == "hash is uid" && s.Kubelet == "true" && s.Ours == "false" && s.OursFacts[s.Step]["pod "+pod+" uid"] != "derived"
		},
	}}
}

// defaultRules are about defaults that the kubelet sets in a pod.
func defaultRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "defaults of unsupported volumes", Class: judge.Deliberate, Doc: docPath,
		Sentence: neverRunSentence,
		Explains: func(s scene) bool {
			_, what, _ := podFact(s.Fact)
			defaults := map[string]string{
				"rbd.pool": `"rbd"`, "rbd.user": `"admin"`, "rbd.keyring": `"/etc/ceph/keyring"`, "iscsi.iscsiInterface": `"default"`,
				"azureDisk.cachingMode": `"ReadWrite"`, "azureDisk.fsType": `"ext4"`, "azureDisk.readOnly": "false", "azureDisk.kind": `"Shared"`,
				"scaleIO.storageMode": `"ThinProvisioned"`, "scaleIO.fsType": `"xfs"`, "ephemeral.volumeClaimTemplate.spec.volumeMode": `"Filesystem"`,
			}
			_, field, ok := strings.Cut(strings.TrimPrefix(what, ".spec.volumes["), "].")
			return ok && s.Ours == "" && s.Kubelet != "" && s.Kubelet == defaults[field]
		},
	}}
}
