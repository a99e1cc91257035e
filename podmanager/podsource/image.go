package podsource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// checkImage returns an error message if the image reference cannot be parsed. No runtime
// could pull such an image.
func checkImage(ref string) []string {
	if _, err := imageref.Parse(ref); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// pullPolicy returns the default pull policy of an image. It is Always if the tag is
// latest, or if the reference has neither a tag nor a digest. It is IfNotPresent for all
// other references, including invalid references.
func pullPolicy(image string) corev1.PullPolicy {
	ref, err := imageref.Parse(image)
	if err == nil && ref.WithDefaultTag().Tag == imageref.DefaultTag {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
