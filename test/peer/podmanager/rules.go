package podmanager

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type scene = judge.Scene[*world]

const docPath = "podmanager/doc.go"

// isModel reports whether our value is the model's.
func isModel(s scene) bool {
	w := &world{Steps: s.World.Steps}
	return s.Ours == play(w, &model{})[s.Step][s.Fact]
}

// hasChanged reports whether, up to a step, a name had several UIDs, or a UID several
// names or kinds.
func hasChanged(s scene) bool {
	type key struct {
		name   types.NamespacedName
		mirror bool
	}
	byName, byUID := map[key]types.UID{}, map[types.UID]key{}
	for _, step := range s.World.Steps[:s.Step+1] {
		for _, pod := range step.Pods {
			k := key{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, isMirror(pod)}
			if uid, ok := byName[k]; ok && uid != pod.UID {
				return true
			}
			if other, ok := byUID[pod.UID]; ok && other != k {
				return true
			}
			byName[k], byUID[pod.UID] = pod.UID, k
		}
	}
	return false
}

func rules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "mirror pods with an empty hash", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet counts a mirror with an empty hash as the mirror of a pod without a hash; ours does not.",
		Explains: func(s scene) bool {
			mirror, pod, ok := strings.Cut(s.Fact, " mirrors ")
			return ok && s.Kubelet == "true" && s.Ours == "false" &&
				object(s.World, mirror).Annotations[mirrorAnnotation] == "" && object(s.World, pod).Annotations[hashAnnotation] == ""
		},
	}, {
		Name: "order of pod lists", Class: judge.ArbitraryOrder, Doc: docPath,
		Sentence: "The kubelet's lists are copies of maps in random order; ours are shared slices in the order in which the pods were added.",
		Explains: func(s scene) bool { return strings.HasSuffix(s.Fact, " in order") && isModel(s) },
	}, {
		Name: "full names without name or namespace", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet finds a pod without a name or a namespace by its full name; ours finds no pod by such a full name.",
		Explains: func(s scene) bool {
			return s.Ours == "" && (s.Fact == "full name _ns" || s.Fact == "full name a_")
		},
	}, {
		Name: "UID translation after static pod removal", Class: judge.KubeletDefect, Doc: docPath,
		Sentence: "The kubelet goes on translating the UID of a mirror to the UID of its static pod after the static pod was removed; ours uses the current pods only.",
		Explains: func(s scene) bool {
			for _, prefix := range []string{"translate ", "mirror of ", "pod of "} {
				if strings.HasPrefix(s.Fact, prefix) {
					return !hasChanged(s) && isModel(s)
				}
			}
			return false
		},
	}, {
		Name: "lookups after name or UID changes", Class: judge.KubeletDefect, Doc: docPath,
		Sentence: "The kubelet's index of names loses a newer pod when an older pod with the same name is removed, and keeps the old name of a renamed pod; ours prevents both by comparing UIDs, for pods and for mirrors.",
		Explains: func(s scene) bool { return hasChanged(s) && isModel(s) },
	}}
}

// object returns the pod that a fact describes.
func object(w *world, text string) *corev1.Pod {
	for _, s := range w.Steps {
		for _, pod := range s.Pods {
			if describe(w, pod) == text {
				return pod
			}
		}
	}
	return &corev1.Pod{}
}
