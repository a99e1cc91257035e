package podsource

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// checkImage returns why no runtime could pull the image of this reference.
func checkImage(ref string) []string {
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// pullPolicy returns when to pull an image for which the pod does not say it: always if
// its tag is latest, or if it has neither a tag nor a digest. An image that nobody can
// pull has no tag.
func pullPolicy(image string) corev1.PullPolicy {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(name).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
