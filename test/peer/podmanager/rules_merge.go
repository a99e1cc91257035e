package podmanager

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type mergeScene = judge.Scene[*mergeWorld]

// A claim is a name or UID that only one pod can have.
type claim struct {
	uid    types.UID
	mirror bool
	name   string
}

func claimsOf(pod *corev1.Pod) []claim {
	return []claim{{uid: pod.UID}, {mirror: isMirror(pod), name: fullName(pod)}}
}

// givenAt returns the pods of each source after a step.
func givenAt(w *mergeWorld, step int) map[string][]*corev1.Pod {
	given := map[string][]*corev1.Pod{}
	for _, s := range w.Steps[:step+1] {
		given[s.Source] = s.Pods
	}
	return given
}

// contested reports whether, up to a step, the sources delivered two pods with a common
// claim.
func contested(w *mergeWorld, step int) bool {
	for i := range step + 1 {
		seen := map[claim]bool{}
		for _, pods := range givenAt(w, i) {
			for _, pod := range pods {
				for _, c := range claimsOf(pod) {
					if seen[c] {
						return true
					}
					seen[c] = true
				}
			}
		}
	}
	return false
}

// A choice is a pod that counts, and its source.
type choice struct {
	pod    *corev1.Pod
	source string
}

// chosenAt returns the pods that count after a step. A pod whose claims already belong to its
// source precedes others; then the order of the sources decides.
func chosenAt(w *mergeWorld, step int) (chosen map[types.UID]choice) {
	holder := map[claim]string{}
	for i := range step + 1 {
		given := givenAt(w, i)
		chosen = map[types.UID]choice{}
		now := map[claim]string{}
		for had := 2; had >= 0; had-- {
			for _, source := range sources() {
				for _, pod := range given[source] {
					held, taken := 0, false
					for _, c := range claimsOf(pod) {
						if holder[c] == source {
							held++
						}
						taken = taken || now[c] != ""
					}
					if held != had || taken {
						continue
					}
					chosen[pod.UID] = choice{pod, source}
					for _, c := range claimsOf(pod) {
						now[c] = source
					}
				}
			}
		}
		holder = now
	}
	return chosen
}

// conflicts returns the reported conflicts of a source's pods that do not count.
func conflicts(w *mergeWorld, step int, source string) (all []podmanager.Conflict) {
	chosen := chosenAt(w, step)
	holder := func(has func(pod *corev1.Pod) bool) string {
		for _, c := range chosen {
			if has(c.pod) {
				return c.source
			}
		}
		return ""
	}
	for _, pod := range givenAt(w, step)[source] {
		if chosen[pod.UID].pod == pod {
			continue
		}
		all = append(all, podmanager.Conflict{
			Source: source, Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
			UIDHolder:  chosen[pod.UID].source,
			NameHolder: holder(func(p *corev1.Pod) bool { return fullName(p) == fullName(pod) && isMirror(p) == isMirror(pod) }),
		})
	}
	return all
}

// expected returns the operation on a UID in a step, if the pods that count are the
// chosen ones.
func expected(w *mergeWorld, step int, uid types.UID) string {
	now := chosenAt(w, step)[uid]
	var old choice
	if step > 0 {
		old = chosenAt(w, step-1)[uid]
	}
	op := ""
	switch {
	case now.pod == nil && old.pod == nil:
		return ""
	case now.pod == nil:
		op, now = "REMOVE", old
	case old.pod == nil:
		op = "ADD"
	default:
		op = operation(old, now)
	}
	if op == "" {
		return ""
	}
	_, value := opText(op, now.pod)
	return value
}

// operation returns the operation between two versions of a pod.
func operation(before, after choice) string {
	old, now := before.pod, after.pod
	notes := func(pod *corev1.Pod) string { return pod.Annotations["note"] }
	same := before.source == after.source && fullName(old) == fullName(now) && notes(old) == notes(now) && equality.Semantic.DeepEqual(old.Labels, now.Labels) && equality.Semantic.DeepEqual(old.Spec, now.Spec) &&
		equality.Semantic.DeepEqual(old.DeletionTimestamp, now.DeletionTimestamp) && equality.Semantic.DeepEqual(old.DeletionGracePeriodSeconds, now.DeletionGracePeriodSeconds)
	switch {
	case !same && now.DeletionTimestamp != nil:
		return "DELETE"
	case !same:
		return "UPDATE"
	case old.Status.Phase != now.Status.Phase:
		return "RECONCILE"
	default:
		return ""
	}
}

// uidOf returns the UID of a fact about a pod.
func uidOf(fact string) (types.UID, bool) {
	uid, ok := strings.CutPrefix(fact, "pod ")
	return types.UID(uid), ok
}

// toldFollows reports whether the fact "told" is a consequence of our facts about pods.
func toldFollows(s mergeScene) bool {
	ops := false
	for fact, value := range s.OursFacts[s.Step] {
		ops = ops || strings.HasPrefix(fact, "pod ") && value != ""
	}
	source := s.World.Steps[s.Step].Source
	first := !slices.ContainsFunc(s.World.Steps[:s.Step], func(a answer) bool { return a.Source == source })
	return s.Fact == "told" && s.Ours == fmt.Sprint(ops || first)
}

func mergeRules() []judge.Rule[*mergeWorld] {
	return []judge.Rule[*mergeWorld]{{
		Name: "same pod from two sources", Class: judge.Deliberate, Doc: docPath,
		Sentence: "If two sources define the same pod, the kubelet runs two pods, and the second waits until the first has ended; in ours the pod belongs to the source that defined it first, and the pod of the other source is reported as a conflict.",
		Explains: func(s mergeScene) bool {
			if !contested(s.World, s.Step) {
				return false
			}
			if uid, ok := uidOf(s.Fact); ok {
				return s.Ours == expected(s.World, s.Step, uid)
			}
			if uid, ok := strings.CutPrefix(s.Fact, "wanted "); ok {
				pod := chosenAt(s.World, s.Step)[types.UID(uid)].pod
				return pod == nil && s.Ours == "" || pod != nil && s.Ours == wanted(pod)
			}
			if uid, ok := strings.CutPrefix(s.Fact, "source "); ok {
				return s.Ours == chosenAt(s.World, s.Step)[types.UID(uid)].source
			}
			return toldFollows(s)
		},
	}, {
		Name: "new name with the same UID", Class: judge.KubeletDefect, Doc: docPath,
		Sentence: "If the name in a manifest with a UID changes, the kubelet keeps the old name of the pod; ours uses the new name.",
		Explains: func(s mergeScene) bool {
			if uid, ok := strings.CutPrefix(s.Fact, "wanted "); ok {
				pod := chosenAt(s.World, s.Step)[types.UID(uid)].pod
				return pod != nil && s.Ours == wanted(pod) && renamed(s.World, s.Step, pod.UID)
			}
			uid, ok := uidOf(s.Fact)
			return ok && s.Step > 0 && s.Ours == expected(s.World, s.Step, uid) && renamed(s.World, s.Step, uid)
		},
	}, {
		Name: "empty and unset lists or maps", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet treats an empty and an unset list or map as different, and updates the pod; ours treats them as equal.",
		Explains: func(s mergeScene) bool {
			uid, ok := uidOf(s.Fact)
			if !ok {
				return toldFollows(s)
			}
			return s.Step > 0 && (strings.HasPrefix(s.Kubelet, "UPDATE ") || strings.HasPrefix(s.Kubelet, "DELETE ")) && s.Ours == expected(s.World, s.Step, uid) &&
				(s.Ours == "" || strings.HasPrefix(s.Ours, "RECONCILE "))
		},
	}}
}

// renamed reports whether a UID had two names up to a step.
func renamed(w *mergeWorld, step int, uid types.UID) bool {
	names := map[string]bool{}
	for _, s := range w.Steps[:step+1] {
		for _, pod := range s.Pods {
			if pod.UID == uid {
				names[fullName(pod)] = true
			}
		}
	}
	return len(names) > 1
}
