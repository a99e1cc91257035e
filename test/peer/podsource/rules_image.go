package podsource

import (
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// imageRules are about images that one side takes for a reference.
func imageRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "image references", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts every image that is not empty, and a container with a reference that cannot be parsed never starts; ours refuses its manifest.",
		Explains: func(s scene) bool {
			prefix, path, ok := onlyOurs(s)
			container, isImage := strings.CutSuffix(path, ".image")
			return ok && isImage && s.KubeletFacts[s.Step][prefix+"image "+container] != ""
		},
	}}
}
