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
	// ReasonLeased: somebody is about to use it.
	ReasonLeased Reason = "leased"
	// ReasonKept: the user wants it kept.
	ReasonKept Reason = "kept"
	// ReasonNoID: the runtime lists it without an id to delete it by.
	ReasonNoID Reason = "no id"
	// ReasonUnknown: its labels, on which keeping it may depend, are not known.
	ReasonUnknown Reason = "labels unknown"
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
	// Aged has those go that nobody has used for the policy's MaxAge.
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
	type candidate struct {
		*Image
		aged   bool
		reason Reason // to stay
		until  time.Time
	}
	all := make([]candidate, len(images))
	for i := range images {
		c := candidate{Image: &images[i]}
		c.reason, c.until = l.protects(now, c.Image)
		c.aged = goal.Aged && l.expired(now, c.Image)
		all[i] = c
	}
	slices.SortFunc(all, func(a, b candidate) int {
		mayA, mayB := a.reason == "", b.reason == ""
		switch {
		case mayA != mayB:
			return first(mayA)
		case !mayA:
			return compareNames(a.Image, b.Image)
		case a.aged != b.aged:
			return first(a.aged)
		}
		return compareTurn(a.Image, b.Image)
	})
	verdicts := make([]Verdict, len(all))
	var freed uint64
	for i, c := range all {
		v := Verdict{Image: *c.Image, Reason: c.reason, Until: c.until}
		switch {
		case c.reason != "":
		case c.aged:
			v.Delete, v.Reason = true, ReasonAge
		case goal.All || freed < goal.Bytes:
			v.Delete, v.Reason = true, ReasonSpace
		default:
			v.Reason = ReasonNotNeeded
		}
		if v.Delete {
			freed = saturating(freed, c.SizeBytes)
		}
		verdicts[i] = v
	}
	return verdicts
}

// first orders what is before what is not.
func first(is bool) int {
	if is {
		return -1
	}
	return 1
}

// compareTurn orders images that may go.
func compareTurn(a, b *Image) int {
	if p, q := a.Preference == Prefer, b.Preference == Prefer; p != q {
		return first(p)
	}
	return cmp.Or(
		a.LastUsed.Compare(b.LastUsed),
		a.FirstDetected.Compare(b.FirstDetected),
		cmp.Compare(b.SizeBytes, a.SizeBytes), // the fewest deletions
		compareNames(a, b),
	)
}

// protects returns why an image may not go now, and until when; "" if it may.
func (l limits) protects(now time.Time, i *Image) (Reason, time.Time) {
	young, recent := i.FirstDetected.Add(l.minAge), i.LastUsed.Add(l.minUnused)
	switch {
	case i.Containers > 0:
		return ReasonInUse, time.Time{}
	case i.Pinned:
		return ReasonPinned, time.Time{}
	case len(i.LeasedBy) > 0:
		return ReasonLeased, i.LeasedUntil
	case i.Preference == Keep:
		return ReasonKept, time.Time{}
	case i.ID == "":
		return ReasonNoID, time.Time{}
	case i.LabelsUnknown:
		return ReasonUnknown, time.Time{}
	case now.Before(young):
		return ReasonYoung, young
	case !i.LastUsed.IsZero() && now.Before(recent):
		return ReasonRecent, recent
	case now.Before(i.RetryAt):
		return ReasonBackoff, i.RetryAt
	}
	return "", time.Time{}
}

// expired says whether nobody has had a use for the image for too long.
func (l limits) expired(now time.Time, i *Image) bool {
	return l.maxAge > 0 && now.Sub(i.unusedSince()) > l.maxAge
}
