package imagegc

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Image is what is known of an image: what the runtime says about it, when it was
// seen, and who wants it. Its slices and maps are not to be modified.
type Image struct {
	// ID is the runtime's id of it.
	ID string `json:"id"`
	// Tags and Digests are its references.
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// RuntimeHandler is the one that it was pulled for, where the runtime keeps
	// images apart by handler.
	RuntimeHandler string `json:"runtimeHandler,omitempty"`
	// SizeBytes is what the runtime says, layers shared with others included: not
	// what its deletion will free.
	SizeBytes uint64 `json:"sizeBytes"`
	// Annotations are those of its spec.
	Annotations map[string]string `json:"annotations,omitempty"`
	// FirstDetected is when it was first listed, LastUsed when a container of it was
	// last listed, zero if never.
	FirstDetected time.Time `json:"firstDetected,omitzero"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
	// Containers is how many containers use it, as their image or as a volume.
	Containers int `json:"containers,omitempty"`
	// Pinned says that the runtime wants it kept.
	Pinned bool `json:"pinned,omitempty"`
	// LeasedBy are the owners of its leases, LeasedUntil the end of the last one.
	LeasedBy    []string  `json:"leasedBy,omitempty"`
	LeasedUntil time.Time `json:"leasedUntil,omitzero"`
	// Preference is what the user says about it.
	Preference Preference `json:"preference,omitempty"`
	// Failures is how many times in a row its deletion has failed, RetryAt when it
	// may be tried again.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
}

// Name returns how people call the image: a tag, or a digest, or its id.
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

// isPause reports whether the image is one that sandboxes are made of. No container of it
// is listed, and not every runtime pins it.
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

// key tells images apart, also where one id is there for several handlers.
func (i Image) key() string { return imageKey(i.ID, i.RuntimeHandler) }

func imageKey(id, handler string) string {
	if handler == "" {
		return id
	}
	return id + "," + handler
}

// unusedSince returns when the image was last used. One that was never
// used counts from when it was seen: it may be meant for later.
func (i Image) unusedSince() time.Time {
	if i.LastUsed.After(i.FirstDetected) {
		return i.LastUsed
	}
	return i.FirstDetected
}

// compareNames breaks ties, so that one input has one outcome.
func compareNames(a, b Image) int {
	return cmp.Or(strings.Compare(a.Name(), b.Name()), strings.Compare(a.ID, b.ID), strings.Compare(a.RuntimeHandler, b.RuntimeHandler))
}

// Preference is what a user wants of an image.
type Preference string

const (
	// Default leaves the image to the policy.
	Default Preference = ""
	// Prefer deletes the image before all that are not preferred, when space is needed.
	// It deletes no image that would have stayed otherwise.
	Prefer Preference = "prefer"
	// Keep keeps the image, whatever happens.
	Keep Preference = "keep"
)
