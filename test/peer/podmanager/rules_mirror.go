package podmanager

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type mirrorScene = judge.Scene[*mirrorWorld]

func callOf(s mirrorScene) mirrorCall { return s.World.Steps[s.Step] }

// noStatic reports whether a pod is not a static pod with a hash.
func noStatic(pod *corev1.Pod) bool {
	return !isStatic(pod) || isMirror(pod) || pod.Annotations[hashAnnotation] == ""
}

func mirrorRules() []judge.Rule[*mirrorWorld] {
	return []judge.Rule[*mirrorWorld]{{
		Name: "refused creation of mirror pods", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet's mirror client creates a mirror of any pod, also while the node is being deleted; ours creates a mirror only of a static pod with a hash, and only while the node is not being deleted.",
		Explains: func(s mirrorScene) bool {
			c := callOf(s)
			refused := noStatic(c.Pod) || c.Node != nil && c.Node.DeletionTimestamp != nil
			if c.Delete || !refused {
				return false
			}
			return strings.HasPrefix(s.Fact, "created") && s.Ours == "" || s.Fact == "error" && s.Ours == "yes"
		},
	}, {
		Name: "UID and resourceVersion of mirror pods", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet sends the UID and the resource version of the static pod with its mirror; ours leaves them to the API server.",
		Explains: func(s mirrorScene) bool {
			return s.Ours == "" && (s.Fact == "created UID" && s.Kubelet == string(callOf(s).Pod.UID) || s.Fact == "created resource version" && s.Kubelet == callOf(s).Pod.ResourceVersion)
		},
	}, {
		Name: "mirror pod that already exists", Class: judge.KubeletDefect, Doc: docPath,
		Sentence: "If the mirror exists already, the kubelet compares the hash of the empty object that is returned with the error, so it reports an error each time; ours gets the existing pod, and succeeds if that pod is a mirror with the same hash and is not being deleted.",
		Explains: func(s mirrorScene) bool {
			c := callOf(s)
			return s.Fact == "error" && s.Kubelet == "yes" && s.Ours == "no" && !c.Delete && c.Fails != "get" && c.Fails != "lost" && c.There != nil &&
				c.There.DeletionTimestamp == nil && c.There.Annotations[mirrorAnnotation] == c.Pod.Annotations[hashAnnotation]
		},
	}, {
		Name: "deletion of non-mirror pods", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet's mirror client deletes any pod by name; ours refuses to delete a pod that is not a mirror or has no UID.",
		Explains: func(s mirrorScene) bool {
			c := callOf(s)
			if !c.Delete || isMirror(c.Pod) && c.Pod.UID != "" {
				return false
			}
			switch {
			case strings.HasPrefix(s.Fact, "deleted"):
				return s.Ours == ""
			case s.Fact == "error":
				return s.Ours == "yes"
			default:
				return s.Fact == "gone" && (s.Ours == "false") == (c.There != nil && c.There.UID == c.Pod.UID)
			}
		},
	}, {
		Name: "errors of mirror pod deletions", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet logs that a mirror could not be deleted, and reports success; ours returns the error.",
		Explains: func(s mirrorScene) bool {
			c := callOf(s)
			return s.Fact == "error" && s.Kubelet == "no" && s.Ours == "yes" && c.Delete && c.Fails == "delete"
		},
	}}
}
