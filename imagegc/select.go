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
	all := make([]candidate, len(images))
	for i := range images {
		img := &images[i]
		c := candidate{Image: img, lastUsed: onWall(now, img.LastUsed).UnixMicro(), firstDetected: onWall(now, img.FirstDetected).UnixMicro()}
		c.reason, c.until = l.protects(now, img)
		switch {
		case c.reason != "":
			c.class = stays
		case goal.Aged && l.expired(now, img):
			c.class = aged
		case img.Preference == Prefer:
			c.class = preferred
		}
		all[i] = c
	}
	slices.SortFunc(all, compareTurn)
	verdicts := make([]Verdict, len(all))
	var freed uint64
	for i := range all {
		c, v := &all[i], &verdicts[i]
		v.Image, v.Reason, v.Until = *c.Image, c.reason, c.until
		switch {
		case c.class == stays:
		case c.class == aged:
			v.Delete, v.Reason = true, ReasonAge
		case goal.All || freed < goal.Bytes:
			v.Delete, v.Reason = true, ReasonSpace
		default:
			v.Reason = ReasonNotNeeded
		}
		if v.Delete {
			freed = saturating(freed, c.SizeBytes)
		}
	}
	return verdicts
}

// candidate is an image with what its turn depends on.
type candidate struct {
	*Image
	class  class
	reason Reason // to stay
	until  time.Time
	// By the wall clock as it is set now, in microseconds: times from before a restart
	// have no other, and an order by one clock here and another there would be none.
	lastUsed, firstDetected int64
}

// class is what an image's turn depends on first. Those that are preferred and aged
// are aged.
type class int

const (
	aged      class = -2
	preferred class = -1
	// ordinary is 0
	stays class = 1
)

// compareTurn orders images by when they go.
func compareTurn(a, b candidate) int {
	if a.class != b.class {
		return cmp.Compare(a.class, b.class)
	}
	if a.class == stays {
		return compareNames(a.Image, b.Image)
	}
	// In these steps, because cmp.Or would take all of them each time.
	if c := cmp.Compare(a.lastUsed, b.lastUsed); c != 0 {
		return c
	}
	if c := cmp.Compare(a.firstDetected, b.firstDetected); c != 0 {
		return c
	}
	if c := cmp.Compare(b.SizeBytes, a.SizeBytes); c != 0 { // the fewest deletions
		return c
	}
	return compareNames(a.Image, b.Image)
}

// protects returns why an image may not go now, and until when; "" if it may.
func (l limits) protects(now time.Time, i *Image) (Reason, time.Time) {
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
