package imagegc

import (
	"cmp"
	"slices"
	"time"
)

// Reason says why an image goes or stays.
type Reason string

// Why images go. The words are the kubelet's metric labels.
const (
	// ReasonAge: unused for longer than MaxAge.
	ReasonAge Reason = "age"
	// ReasonSpace: the space is needed.
	ReasonSpace Reason = "space"
)

// Why images stay. The first of them that is true is told, in this order.
const (
	// ReasonInUse: a container uses it.
	ReasonInUse Reason = "in use"
	// ReasonPinned: the runtime wants it kept.
	ReasonPinned Reason = "pinned"
	// ReasonSandbox: pods stand on it, and containers do not tell. By its name it is
	// a pause image.
	ReasonSandbox Reason = "sandbox image"
	// ReasonLeased: a caller is about to use it.
	ReasonLeased Reason = "leased"
	// ReasonKept: the user wants it kept.
	ReasonKept Reason = "kept"
	// ReasonNoID: the runtime lists it without an id to delete it by.
	ReasonNoID Reason = "no id"
	// ReasonYoung: first seen less than MinAge ago.
	ReasonYoung Reason = "young"
	// ReasonRecent: in use less than MinUnused ago.
	ReasonRecent Reason = "recently used"
	// ReasonBackoff: its deletion has failed, and is tried again later.
	ReasonBackoff Reason = "backing off"
	// ReasonNotNeeded: it could go, but there is space.
	ReasonNotNeeded Reason = "not needed"
)

// Goal says how many images shall go.
type Goal struct {
	// Aged deletes those that were not used for the policy's MaxAge.
	Aged bool
	// Bytes is how much shall be freed, going by the sizes that the runtime tells.
	Bytes uint64
	// All has every image go that may.
	All bool
}

// Verdict is the decision about one image.
type Verdict struct {
	Image Image `json:"image"`
	// Delete says whether the image goes.
	Delete bool `json:"delete"`
	// Reason says why, or why not.
	Reason Reason `json:"reason"`
	// Until is when the reason to stay ends by itself; zero if it does not.
	Until time.Time `json:"until,omitzero"`
}

// Select decides about images. It is pure: the same images, in whatever order, at
// the same time have the same outcome, and nothing is modified.
//
// First in the answer are the images that may go, in the order in which they do:
// aged ones, preferred ones, then the longest unused, which those never used are,
// then the first detected, then the largest; so many of them as reach the goal
// have Delete set. After these come those that stay anyway, by name. More bytes never
// spare an image that fewer delete.
func Select(now time.Time, images []Image, policy Policy, goal Goal) []Verdict {
	l := policy.limits()
	verdicts := make([]Verdict, len(images))
	for i, img := range images {
		v := Verdict{Image: img}
		v.Reason, v.Until = l.protects(now, img)
		if v.Reason == "" {
			v.Reason = ReasonNotNeeded
			if goal.Aged && l.expired(now, img) {
				v.Delete, v.Reason = true, ReasonAge
			}
		}
		verdicts[i] = v
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int { return compareTurn(now, a, b) })
	var freed uint64
	for i := range verdicts {
		v := &verdicts[i]
		if v.Reason == ReasonNotNeeded && (goal.All || freed < goal.Bytes) {
			v.Delete, v.Reason = true, ReasonSpace
		}
		if v.Delete {
			freed = saturating(freed, v.Image.SizeBytes)
		}
	}
	return verdicts
}

// class is what the turn of an image depends on first.
type class int

const (
	aged class = iota // also if preferred
	preferred
	ordinary
	stays
)

func (v Verdict) class() class {
	switch {
	case v.Reason == ReasonAge:
		return aged
	case v.Reason != ReasonNotNeeded:
		return stays
	case v.Image.Preference == Prefer:
		return preferred
	default:
		return ordinary
	}
}

// compareTurn orders images by when they go. Times from before a restart have no
// monotonic reading, so that all are compared by the wall clock as it is set now.
func compareTurn(now time.Time, a, b Verdict) int {
	if a.class() == stays && b.class() == stays {
		return compareNames(a.Image, b.Image)
	}
	return cmp.Or(
		cmp.Compare(a.class(), b.class()),
		onWall(now, a.Image.LastUsed).Compare(onWall(now, b.Image.LastUsed)),
		onWall(now, a.Image.FirstDetected).Compare(onWall(now, b.Image.FirstDetected)),
		cmp.Compare(b.Image.SizeBytes, a.Image.SizeBytes), // for the fewest deletions
		compareNames(a.Image, b.Image),
	)
}

// protects returns why an image may not go now, and until when; "" if it may.
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

// expired reports whether the image was not used for longer than MaxAge.
func (l limits) expired(now time.Time, i Image) bool {
	return l.maxAge > 0 && now.Sub(i.unusedSince()) > l.maxAge
}
