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
	// Tags and Digests are the references of the image.
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// RuntimeHandler is the handler that the image was pulled for, if the runtime has
	// separate images for each handler.
	RuntimeHandler string `json:"runtimeHandler,omitempty"`
	// SizeBytes is the size that the runtime reports. It includes layers shared with
	// other images, so that a deletion may free less.
	SizeBytes uint64 `json:"sizeBytes"`
	// Annotations are the annotations of the image's spec.
	Annotations map[string]string `json:"annotations,omitempty"`
	// FirstDetected is when the image was first listed, LastUsed when a container that
	// uses it was last listed. LastUsed is zero if no such container was ever listed.
	FirstDetected time.Time `json:"firstDetected,omitzero"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
	// Containers is how many containers use the image, as their image or as a volume.
	Containers int `json:"containers,omitempty"`
	// Pinned reports whether the runtime has pinned the image.
	Pinned bool `json:"pinned,omitempty"`
	// LeasedBy are the owners of the image's leases, sorted. LeasedUntil is when the last lease
	// ends.
	LeasedBy    []string  `json:"leasedBy,omitempty"`
	LeasedUntil time.Time `json:"leasedUntil,omitzero"`
	// Preference is the user's preference.
	Preference Preference `json:"preference,omitempty"`
	// Failures is how many times in a row the deletion of the image has failed. The
	// deletion is retried at RetryAt or later.
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

// isPause reports whether the image is a pause image, which sandboxes use. The runtime
// lists no container that uses a pause image, and not every runtime pins it.
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

// key identifies the image, even if several handlers have an image with the same id.
func (i Image) key() string { return imageKey(i.ID, i.RuntimeHandler) }

func imageKey(id, handler string) string {
	if handler == "" {
		return id
	}
	return id + "," + handler
}

// unusedSince returns when the image was last used. If the image was never used,
// unusedSince returns when it was first listed: it may have been pulled for later use.
func (i Image) unusedSince() time.Time {
	if i.LastUsed.After(i.FirstDetected) {
		return i.LastUsed
	}
	return i.FirstDetected
}

// compareNames orders images by name, id and runtime handler. It is the last sort key, so
// that the order is deterministic.
func compareNames(a, b Image) int {
	return cmp.Or(strings.Compare(a.Name(), b.Name()), strings.Compare(a.ID, b.ID), strings.Compare(a.RuntimeHandler, b.RuntimeHandler))
}

// Preference is a user's preference for an image.
type Preference string

const (
	// Default means that the policy decides about the image.
	Default Preference = ""
	// Prefer means that the image is deleted before other images when space is needed. It
	// does not remove any protection.
	Prefer Preference = "prefer"
	// Keep means that the image is never deleted.
	Keep Preference = "keep"
)
