package podsource

import (
	"errors"
	"strings"

	"github.com/distribution/reference"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// imageOf returns the image that a fact is about, and whether that is the fact that it
// is no reference, or the problem that ours has with it.
func imageOf(s scene) (image string, ok bool) {
	_, path, isImage := strings.Cut(s.Fact, " image ")
	_, problem, isProblem := problem(s.Fact)
	if isProblem {
		path, isImage = strings.CutSuffix(problem, ".image")
	}
	return text(containerOf(document(s), path), "image"), isImage
}

// isReference reports whether the kubelet can pull an image of this name.
func isReference(image string) bool {
	_, err := reference.ParseNormalizedNamed(image)
	return err == nil
}

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
	}, {
		Name: "digests of a wrong length", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet cannot pull an image whose digest has not the length of its algorithm or has capitals; ours takes it for a reference.",
		Explains: func(s scene) bool {
			image, ok := imageOf(s)
			name, digest, pinned := strings.Cut(image, "@")
			algorithm, digits, _ := strings.Cut(digest, ":")
			return ok && s.Kubelet != "" && s.Ours == "" && pinned && isReference(name) && algorithm == "sha256" &&
				len(digits) >= 32 && (len(digits) != 64 || strings.ToLower(digits) != digits)
		},
	}, {
		Name: "long names of images", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet cannot pull an image whose name with its registry is longer than 255 characters; ours takes it for a reference.",
		Explains: func(s scene) bool {
			image, ok := imageOf(s)
			_, err := reference.ParseNormalizedNamed(image)
			return ok && s.Kubelet != "" && s.Ours == "" && errors.Is(err, reference.ErrNameTooLong)
		},
	}, {
		Name: "registries that are no host", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet cannot pull from a registry whose name is only dots; ours takes it for one.",
		Explains: func(s scene) bool {
			image, ok := imageOf(s)
			host, rest, _ := strings.Cut(image, "/")
			return ok && s.Kubelet != "" && s.Ours == "" && strings.Trim(host, ".") == "" && isReference("host.example/"+rest)
		},
	}, {
		Name: "registries with an underscore", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet can pull an image whose first part has a dot and an underscore; ours takes that part for a registry, and refuses it.",
		Explains: func(s scene) bool {
			image, ok := imageOf(s)
			host, _, _ := strings.Cut(image, "/")
			return ok && s.Kubelet == "" && s.Ours != "" && strings.Contains(host, "_") && strings.Contains(host, ".") && isReference(image)
		},
	}}
}
