package podsource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// checkImage returns why no runtime could pull the image of this reference.
func checkImage(ref string) []string {
	if _, err := imageref.Parse(ref); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// pullPolicy returns when to pull an image for which the pod does not say it: always if
// its tag is latest, or if it has neither a tag nor a digest. An image that nobody can
// pull has no tag.
func pullPolicy(image string) corev1.PullPolicy {
	ref, err := imageref.Parse(image)
	if err == nil && ref.WithDefaultTag().Tag == imageref.DefaultTag {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
