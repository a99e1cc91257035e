package podsource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

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
func sourcesOf(w *world, step int, pod string) (all []source) {
	if step < 0 || !readsStep(w, w.Steps[step]) {
		return nil
	}
	for _, f := range w.Steps[step].Files {
		for i, doc := range f.Docs {
			if w.podName(doc) == pod && !strings.HasPrefix(f.Name, ".") {
				all = append(all, source{f, i})
			}
		}
	}
	return all
}

// definedTwice reports whether another document has defined a pod of the document that
// a fact is about, now or before.
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

// isNew reports whether the step before had no file of a name.
func isNew(w *world, step int, name string) bool {
	return step == 0 || !slices.ContainsFunc(w.Steps[step-1].Files, func(f file) bool { return f.Name == name })
}

// defined counts the documents that have defined a pod so far. Ours keeps those of a
// file that has become bad.
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

// before returns what a fact about a pod is if the pod stays as it was in the step
// before: empty if there was none.
func before(facts []judge.Facts, step int, fact string) string {
	pod, what, _ := podFact(fact)
	switch {
	case !hasPod(facts, step-1, pod):
		return ""
	case strings.HasSuffix(what, " changed"):
		return "false"
	default:
		return facts[step-1][fact]
	}
}

// contentChanged reports whether ours counts two documents as two contents.
func contentChanged(a, b any) bool {
	content := func(doc any) string {
		var text strings.Builder
		toJSON(&text, doc)
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(strings.ReplaceAll(text.String(), "1e2", "100")), &pod); err != nil {
			return text.String()
		}
		return marshal(pod.ObjectMeta) + marshal(pod.Spec)
	}
	return content(a) != content(b)
}

// lastRead returns the documents of a pod in the last step before this one in which
// ours took the pod from them.
func lastRead(s scene, pod string) []source {
	for step := s.Step - 1; step >= 0; step-- {
		all := slices.DeleteFunc(sourcesOf(s.World, step, pod), func(o source) bool { return refuses(s.OursFacts, step, o.file.Name) })
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// firstSeen returns the step in which a side first saw the pod's UID.
func firstSeen(facts []judge.Facts, step int, pod string) int {
	if uid := facts[step]["pod "+pod+" uid"]; uid != "derived" {
		for step > 0 && otherPod(facts[step-1], "", uid) {
			step--
		}
		return step
	}
	for step > 0 && facts[step]["pod "+pod+" uid changed"] == "false" {
		step--
	}
	return step
}

func timeOf(step int) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 10*(step+1), 0, time.UTC)
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

func podRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "other files", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads every file whose name does not begin with a dot; ours reads those that end in .yaml, .yml or .json.",
		Explains: func(s scene) bool {
			if f, _, _, ok := fileOf(s); ok {
				return s.Ours == "" && !isManifest(s.World, f.Name)
			}
			pod, _, ok := podFact(s.Fact)
			sources := sourcesOf(s.World, s.Step, pod)
			return ok && s.Ours == "" && len(sources) > 0 && !slices.ContainsFunc(sources, func(o source) bool { return isManifest(s.World, o.file.Name) })
		},
	}, {
		Name: "unknown and repeated fields", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ignores fields that it does not know, and takes the last of a field that is given twice; ours refuses the manifest and names each.",
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
		Name: "refused whole", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ends the pods of a file that has become bad; ours refuses a file as a whole if anything in it is wrong, and its pods stay as they were.",
		Explains: func(s scene) bool {
			pod, _, ok := podFact(s.Fact)
			asBefore := s.Ours == before(s.OursFacts, s.Step, s.Fact)
			if !ok || !asBefore && s.Ours != "" {
				return false
			}
			if asBefore && s.Step > 0 && s.Kubelet == before(s.KubeletFacts, s.Step, s.Fact) && s.KubeletFacts[s.Step-1][s.Fact] != s.OursFacts[s.Step-1][s.Fact] {
				return true // as they were on both sides
			}
			for step := range s.Step + 1 {
				for _, o := range sourcesOf(s.World, step, pod) {
					if refuses(s.OursFacts, s.Step, o.file.Name) && (asBefore || isNew(s.World, s.Step, o.file.Name)) {
						return true
					}
				}
			}
			return false
		},
	}, {
		Name: "sources that are away", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ends all pods of a folder that does not exist and of an answer that is empty; ours keeps them until the folder or the answer says otherwise.",
		Explains: func(s scene) bool {
			_, _, ok := podFact(s.Fact)
			now := s.World.Steps[s.Step]
			away := !readsStep(s.World, now) || s.World.HTTP && now.Files[0].text() == ""
			return ok && away && s.Kubelet == "" && s.Ours == before(s.OursFacts, s.Step, s.Fact)
		},
	}, {
		Name: "references to the API", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet refuses a static pod that refers to an object of the API server; ours accepts it, because a Store can have ConfigMaps and Secrets from manifests.",
		Explains: func(s scene) bool {
			_, _, what, ok := fileOf(s)
			return ok && what == "reference" && s.Kubelet != "" && s.Ours == ""
		},
	}}
}

// manyRules are about several documents, and documents that had another name before.
func manyRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "later documents", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet ignores what follows the first document of a file; ours reads all documents, and refuses the file if one is bad.",
		Explains: func(s scene) bool {
			if f, doc, what, ok := fileOf(s); ok && doc < 0 && what == "text" {
				_, after, marked := strings.Cut(strings.ReplaceAll(f.text()[min(3, len(f.text())):], "\n...", "\n---"), "\n---")
				return marked && strings.Trim(after, "-\n ") != "" && s.Kubelet == "" && s.Ours == "refused"
			}
			pod, _, ok := podFact(s.Fact)
			return ok && !hasPod(s.KubeletFacts, s.Step, pod) && slices.ContainsFunc(sourcesOf(s.World, s.Step, pod), func(o source) bool {
				return o.doc > 0 && o.file.Form == asYAML && isWould(s, o)
			})
		},
	}, {
		Name: "YAML in JSON files", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads every file as YAML; ours reads one that ends in .json, or an answer that begins with a brace, as JSON.",
		Explains: func(s scene) bool {
			f, _, what, ok := fileOf(s)
			text := f.text()
			return ok && what == "text" && s.Kubelet == "" && s.Ours == "refused" && !json.Valid([]byte(text)) &&
				(strings.HasSuffix(strings.ToLower(f.Name), ".json") || s.World.HTTP && strings.HasPrefix(strings.TrimSpace(text), "{"))
		},
	}, {
		Name: "two of one name", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet takes the last of two files that define a pod of one name; ours takes the first, and reports the other as a problem.",
		Explains: func(s scene) bool {
			if _, _, what, ok := fileOf(s); ok && what == "taken metadata.uid" {
				return s.Kubelet == "" && s.Ours == "yes" && definedUID(s.World, s.Step, text(document(s), "metadata", "uid")) > 1
			} else if ok && what == "taken metadata.name" {
				return s.Kubelet == "" && s.Ours == "yes" && definedTwice(s)
			}
			pod, _, ok := podFact(s.Fact)
			sources := sourcesOf(s.World, s.Step, pod)
			several := len(sources) > 1
			sources = slices.DeleteFunc(sources, func(o source) bool {
				return !isManifest(s.World, o.file.Name) || refuses(s.OursFacts, s.Step, o.file.Name)
			})
			return ok && several && len(sources) > 0 && isWould(s, sources[0])
		},
	}, {
		Name: "another name for a UID", Class: judge.KubeletDefect, Doc: docPath, Ends: true,
		Sentence: "The kubelet keeps the old name of a pod with a UID whose manifest has another name now; ours gives it the new name.",
		Explains: func(s scene) bool {
			pod, _, ok := podFact(s.Fact)
			if !ok || s.Step == 0 {
				return false
			}
			if hasPod(s.KubeletFacts, s.Step, pod) {
				uid := s.KubeletFacts[s.Step]["pod "+pod+" uid"]
				return s.Ours == "" && uid != "derived" && otherPod(s.OursFacts[s.Step], pod, uid)
			}
			uid := s.OursFacts[s.Step]["pod "+pod+" uid"]
			return uid != "derived" && otherPod(s.KubeletFacts[s.Step], pod, uid) &&
				slices.ContainsFunc(sourcesOf(s.World, s.Step, pod), func(o source) bool { return isWould(s, o) })
		},
	}, {
		Name: "came again", Class: judge.Deliberate, Doc: docPath,
		Sentence: "When a file is good again its pods are new to the kubelet, which had ended them; to ours they are those from before.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			if !strings.HasSuffix(what, " changed") {
				return false
			}
			ours, kubelet := hasPod(s.OursFacts, s.Step-1, pod), hasPod(s.KubeletFacts, s.Step-1, pod)
			if s.Ours == "new" {
				return !ours && kubelet && (s.Kubelet == "true" || s.Kubelet == "false")
			}
			now, old := sourcesOf(s.World, s.Step, pod), lastRead(s, pod)
			if s.Kubelet != "new" || kubelet || !ours || len(now) == 0 || len(old) == 0 {
				return false
			}
			doc := now[0].file.Docs[now[0].doc]
			if what == "uid changed" && text(doc, "metadata", "uid") != "" {
				return s.Ours == fmt.Sprint(text(doc, "metadata", "uid") != text(old[0].file.Docs[old[0].doc], "metadata", "uid"))
			}
			return s.Ours == fmt.Sprint(contentChanged(old[0].file.Docs[old[0].doc], doc))
		},
	}}
}

// valueRules are about single values of a pod that both sides have.
func valueRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "time of the first sight", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet writes config.seen with nine digits behind the point; ours leaves zeros out.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			return what == ".metadata.annotations."+seenAnnotation &&
				s.Kubelet == marshal(timeOf(firstSeen(s.KubeletFacts, s.Step, pod)).Format("2006-01-02T15:04:05.000000000Z07:00")) &&
				s.Ours == marshal(timeOf(firstSeen(s.OursFacts, s.Step, pod)).Format(time.RFC3339Nano))
		},
	}, {
		Name: "kind", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet's pods have no kind and no API version; ours have those of the manifest.",
		Explains: func(s scene) bool {
			_, what, _ := podFact(s.Fact)
			return s.Kubelet == "" && (what == ".kind" && s.Ours == `"Pod"` || what == ".apiVersion" && s.Ours == `"v1"`)
		},
	}, {
		Name: "UID from content", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet makes the UID of a pod from the path of its file and from its content with the defaults; ours makes it from the content alone, as it is written, so that a renamed file is the same pod.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			now, old := sourcesOf(s.World, s.Step, pod), lastRead(s, pod)
			if len(now) == 0 || len(old) == 0 || !hasPod(s.KubeletFacts, s.Step, pod) {
				return false
			}
			change := fmt.Sprint(contentChanged(old[0].file.Docs[old[0].doc], now[0].file.Docs[now[0].doc]))
			own := text(now[0].file.Docs[now[0].doc], "metadata", "uid") != ""
			return s.Ours == change && (what == "hash changed" || what == "uid changed" && !own)
		},
	}, {
		Name: "hash of the content", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet's config.hash of a manifest with a UID is that UID, whatever else changes; ours follows the content.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			return what == "hash is uid" && s.Kubelet == "true" && s.Ours == "false" && s.OursFacts[s.Step]["pod "+pod+" uid"] != "derived"
		},
	}, {
		Name: "NoExecute over HTTP", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet lets the pods of files tolerate every NoExecute taint, and those of a URL not; ours lets both.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			rest, ok := strings.CutPrefix(what, ".spec.tolerations[")
			number, field, _ := strings.Cut(rest, "].")
			next := "pod " + pod + " .spec.tolerations[" + number + "].operator"
			return ok && s.World.HTTP && s.Kubelet == "" && s.KubeletFacts[s.Step][next] == "" &&
				(field == "effect" && s.Ours == `"NoExecute"` || field == "operator" && s.Ours == `"Exists"`)
		},
	}}
}

// defaultRules are about what the kubelet adds to a pod.
func defaultRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "tolerations with a time", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet makes a toleration of all NoExecute taints for some seconds one without an end; ours adds a second one.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			rest, ok := strings.CutPrefix(what, ".spec.tolerations[")
			number, field, _ := strings.Cut(rest, "].")
			ours := s.OursFacts[s.Step]
			prefix := "pod " + pod + " .spec.tolerations["
			if !ok || s.World.HTTP || s.Kubelet != "" {
				return false
			}
			if field == "tolerationSeconds" {
				return ours[prefix+number+"].operator"] == `"Exists"` && ours[prefix+number+"].effect"] == `"NoExecute"` && ours[prefix+number+"].key"] == ""
			}
			timed := slices.ContainsFunc([]string{"0", "1", "2"}, func(n string) bool {
				return ours[prefix+n+"].tolerationSeconds"] != "" && ours[prefix+n+"].effect"] == `"NoExecute"`
			})
			return timed && (field == "effect" && s.Ours == `"NoExecute"` || field == "operator" && s.Ours == `"Exists"`)
		},
	}, {
		Name: "defaults of volumes", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet gives each kind of volume its defaults; ours the kinds that it mounts.",
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
	}, {
		Name: "name of the service account", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet copies serviceAccountName and serviceAccount into each other; ours leaves them.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			other := map[string]string{".spec.serviceAccountName": ".spec.serviceAccount", ".spec.serviceAccount": ".spec.serviceAccountName"}[what]
			return other != "" && s.Kubelet != "" && s.Kubelet == s.OursFacts[s.Step]["pod "+pod+" "+other]
		},
	}, {
		Name: "pull policy of what is no image", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet gives an image that cannot be parsed the pull policy IfNotPresent; ours, where it takes the image for one, gives it the one of its tag.",
		Explains: func(s scene) bool {
			pod, what, _ := podFact(s.Fact)
			image := s.OursFacts[s.Step]["pod "+pod+" "+strings.TrimSuffix(what, "imagePullPolicy")+"image"]
			_, err := reference.ParseNormalizedNamed(strings.Trim(image, `"`))
			return strings.HasSuffix(what, "].imagePullPolicy") && err != nil && s.Kubelet == `"IfNotPresent"` && s.Ours == `"Always"`
		},
	}, {
		Name: "status in a manifest", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet keeps the status of a manifest but for its phase; ours removes it.",
		Explains: func(s scene) bool {
			_, what, _ := podFact(s.Fact)
			return strings.HasPrefix(what, ".status.") && s.Kubelet != "" && s.Ours == ""
		},
	}}
}
