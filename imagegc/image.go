package imagegc

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Image has the facts about an image: what the runtime reports about it, when it was
// seen, and what protects it. Its slices and maps must not be modified.
type Image struct {
	// ID is the runtime's id of the image.
	ID string `json:"id"`
	// Tags and Digests are its references.
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// RuntimeHandler is the handler that the image was pulled for, if the runtime has
	// separate images for each handler.
	RuntimeHandler string `json:"runtimeHandler,omitempty"`
	// SizeBytes is the size that the runtime reports. It includes layers shared with
	// other images, so that a deletion may free less.
	SizeBytes uint64 `json:"sizeBytes"`
	// Annotations are the annotations of its spec.
	Annotations map[string]string `json:"annotations,omitempty"`
	// FirstDetected is when the image was first listed, LastUsed when a container that
	// uses it was last listed, zero if never.
	FirstDetected time.Time `json:"firstDetected,omitzero"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
	// Containers is how many containers use it, as their image or as a volume.
	Containers int `json:"containers,omitempty"`
	// Pinned reports whether the runtime has pinned the image.
	Pinned bool `json:"pinned,omitempty"`
	// LeasedBy are the owners of its leases, sorted. LeasedUntil is when the last lease
	// ends.
	LeasedBy    []string  `json:"leasedBy,omitempty"`
	LeasedUntil time.Time `json:"leasedUntil,omitzero"`
	// Preference is the user's preference.
	Preference Preference `json:"preference,omitempty"`
	// Failures is how many times in a row its deletion has failed. It is retried at
	// RetryAt or later.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
}

// Name returns the name of the image for people: a tag, else a digest, else its id.
func (i Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	default:
		return i.ID
	}
}

// isPause reports whether the image is a pause image, which sandboxes use. No container
// that uses it is listed, and not every runtime pins it.
func (i Image) isPause() bool {
	return slices.ContainsFunc(slices.Concat(i.Tags, i.Digests), func(ref string) bool {
		parsed, err := imageref.Parse(ref)
		if err != nil {
			return false
		}
		switch path.Base(parsed.Repository) {
		case "pause", "mirrored-pause", "pause-amd64", "pause-arm", "pause-arm64", "pause-ppc64le", "pause-s390x":
			return true
		default:
			return false // such as build-pause or pause-menu
		}
	})
}

// key identifies the image, also if one id exists for several handlers.
func (i Image) key() string { return imageKey(i.ID, i.RuntimeHandler) }

func imageKey(id, handler string) string {
	if handler == "" {
		return id
	}
	return id + "," + handler
}

// unusedSince returns when the image was last used. If it was never used, that is when it
// was first seen: it may have been pulled for later use.
func (i Image) unusedSince() time.Time {
	if i.LastUsed.After(i.FirstDetected) {
		return i.LastUsed
	}
	return i.FirstDetected
}

// compareNames orders images by name, as the last key of an order, so that the result is
// deterministic.
func compareNames(a, b Image) int {
	return cmp.Or(strings.Compare(a.Name(), b.Name()), strings.Compare(a.ID, b.ID), strings.Compare(a.RuntimeHandler, b.RuntimeHandler))
}

// Preference is what a user wants for an image.
type Preference string

const (
	// Default leaves the image to the policy.
	Default Preference = ""
	// Prefer deletes the image before all others when space is needed. It deletes no
	// image that would be kept otherwise.
	Prefer Preference = "prefer"
	// Keep never deletes the image.
	Keep Preference = "keep"
)
