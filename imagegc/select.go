package imagegc

import (
	"cmp"
	"slices"
	"time"
)

// Reason is why an image is deleted or kept.
type Reason string

// Reasons for which images are deleted. They are the kubelet's metric labels.
const (
	// ReasonAge: the image was unused for longer than MaxAge.
	ReasonAge Reason = "age"
	// ReasonSpace: the space is needed.
	ReasonSpace Reason = "space"
)

// Reasons for which images are kept. A [Decision] has the first reason that applies, in this
// order.
const (
	// ReasonInUse: a container uses the image.
	ReasonInUse Reason = "in use"
	// ReasonPinned: the runtime has pinned the image.
	ReasonPinned Reason = "pinned"
	// ReasonSandbox: the image is a pause image. Sandboxes use it, but no listed container does.
	ReasonSandbox Reason = "sandbox image"
	// ReasonLeased: a caller is about to use the image.
	ReasonLeased Reason = "leased"
	// ReasonKept: the user's preference is [Keep].
	ReasonKept Reason = "kept"
	// ReasonNoID: the runtime lists the image without an id, so that it cannot be deleted.
	ReasonNoID Reason = "no id"
	// ReasonYoung: the image was first seen less than MinAge ago.
	ReasonYoung Reason = "young"
	// ReasonRecent: the image was in use less than MinUnused ago.
	ReasonRecent Reason = "recently used"
	// ReasonBackoff: the deletion of the image failed and will be retried later.
	ReasonBackoff Reason = "backing off"
	// ReasonNotNeeded: the image may be deleted, but there is enough space.
	ReasonNotNeeded Reason = "not needed"
)

// Goal determines which of the unprotected images are deleted.
type Goal struct {
	// Aged deletes the images that have been unused for longer than the policy's MaxAge.
	Aged bool
	// Bytes is how many bytes must be freed, according to the sizes that the runtime
	// reports.
	Bytes uint64
	// All deletes every image that is not protected.
	All bool
}

// Decision is the decision about one image.
type Decision struct {
	Image Image `json:"image"`
	// Delete reports whether the image is deleted.
	Delete bool `json:"delete"`
	// Reason is why the image is deleted or kept.
	Reason Reason `json:"reason"`
	// Until is when the reason to keep the image ends if its use and the settings do not
	// change. It is zero if the reason does not end by itself.
	Until time.Time `json:"until,omitzero"`
}

// PlanDeletions decides which images are deleted. It is a pure function: it modifies
// nothing, and the same images in any order give the same result.
//
// The result starts with the images that may be deleted, in the order of deletion: images that
// have reached MaxAge if the goal is Aged, then images with the preference [Prefer], then other
// images. Each group is sorted by last use (never used images first), then by first detection,
// then by size (the largest first), then by name. Delete is set for as many images as the goal
// needs. Protected images follow, sorted by name. With a larger Bytes in the goal, at least the
// same images are deleted.
func PlanDeletions(now time.Time, images []Image, policy Policy, goal Goal) []Decision {
	l := policy.limits()
	decisions := make([]Decision, len(images))
	for i, img := range images {
		v := Decision{Image: img}
		v.Reason, v.Until = l.protects(now, img)
		if v.Reason == "" {
			v.Reason = ReasonNotNeeded
			if goal.Aged && l.expired(now, img) {
				v.Delete, v.Reason = true, ReasonAge
			}
		}
		decisions[i] = v
	}
	slices.SortFunc(decisions, func(a, b Decision) int { return compareOrder(now, a, b) })
	var freed uint64
	for i := range decisions {
		v := &decisions[i]
		if v.Reason == ReasonNotNeeded && (goal.All || freed < goal.Bytes) {
			v.Delete, v.Reason = true, ReasonSpace
		}
		if v.Delete {
			freed = saturatingAdd(freed, v.Image.SizeBytes)
		}
	}
	return decisions
}

// class is the first key of the deletion order.
type class int

const (
	aged class = iota // also if preferred
	preferred
	ordinary
	protected
)

func (v Decision) class() class {
	switch {
	case v.Reason == ReasonAge:
		return aged
	case v.Reason != ReasonNotNeeded:
		return protected
	case v.Image.Preference == Prefer:
		return preferred
	default:
		return ordinary
	}
}

// compareOrder orders images by when they are deleted. Times from before a restart have no
// monotonic reading. Therefore all times are compared by the present setting of the wall
// clock.
func compareOrder(now time.Time, a, b Decision) int {
	if a.class() == protected && b.class() == protected {
		return compareNames(a.Image, b.Image)
	}
	return cmp.Or(
		cmp.Compare(a.class(), b.class()),
		wallTime(now, a.Image.LastUsed).Compare(wallTime(now, b.Image.LastUsed)),
		wallTime(now, a.Image.FirstDetected).Compare(wallTime(now, b.Image.FirstDetected)),
		cmp.Compare(b.Image.SizeBytes, a.Image.SizeBytes), // fewer deletions are then needed
		compareNames(a.Image, b.Image),
	)
}

// protects returns why an image must not be deleted now, and until when. The reason is ""
// if the image may be deleted.
func (l limits) protects(now time.Time, i Image) (Reason, time.Time) {
	young, recent := i.FirstDetected.Add(l.minAge), i.LastUsed.Add(l.minUnused)
	switch {
	case i.Containers > 0:
		return ReasonInUse, time.Time{}
	case i.Pinned:
		return ReasonPinned, time.Time{}
	case i.isPause():
		return ReasonSandbox, time.Time{}
	case len(i.LeasedBy) > 0:
		return ReasonLeased, i.LeasedUntil
	case i.Preference == Keep:
		return ReasonKept, time.Time{}
	case i.ID == "":
		return ReasonNoID, time.Time{}
	case now.Before(young):
		return ReasonYoung, young
	case !i.LastUsed.IsZero() && now.Before(recent):
		return ReasonRecent, recent
	case now.Before(i.RetryAt):
		return ReasonBackoff, i.RetryAt
	}
	return "", time.Time{}
}

// expired reports whether the image has been unused for longer than MaxAge.
func (l limits) expired(now time.Time, i Image) bool {
	return l.maxAge > 0 && now.Sub(i.unusedSince()) > l.maxAge
}
