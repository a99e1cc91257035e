package podsource

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// imageRules are about images that only one side treats as a valid reference.
func imageRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "image references that cannot be parsed", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts every image that is not empty, and a container with a reference that cannot be parsed never starts; ours refuses a manifest with such a reference.",
		Explains: func(s scene) bool {
			prefix, path, ok := onlyOurs(s)
			container, isImage := strings.CutSuffix(path, ".image")
			return ok && isImage && s.KubeletFacts[s.Step][prefix+"image "+container] != ""
		},
	}, {
		Name: "image volumes without a reference", Class: judge.KubeletDefect, Doc: docPath,
		Sentence: "The kubelet accepts an image volume without a reference in a manifest; ours refuses the manifest, as the API server refuses such a pod.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			volumes, isList := get(document(s), "spec", "volumes").(*list)
			return ok && path == "spec.volumes.image.reference" && isList && slices.ContainsFunc(volumes.items, func(v any) bool {
				return get(v, "image") != nil && text(v, "image", "reference") == ""
			})
		},
	}}
}
