package judge

import (
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// A WallClock is a wall clock that can be set while time passes in a synctest bubble. Its zero
// value is not usable.
type WallClock struct {
	clock.RealClock
	Offset *time.Duration // of the wall clock from the bubble's time
}

// Now returns a time with a monotonic reading. Times of a synctest bubble do not have one.
func (c WallClock) Now() time.Time {
	now := time.Now()
	shown := now.Add(*c.Offset)
	// The layout of time.Time: a flag bit, the seconds since 1885 and the nanoseconds in one
	// word; then the monotonic reading.
	words := struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}{loc: time.UTC}
	const since1885, since2000 = -2682288000, 946684800 * int64(time.Second)
	words.wall = 1<<63 | uint64(shown.Unix()-since1885)<<30 | uint64(shown.Nanosecond())
	words.ext = 1 + now.UnixNano() - since2000
	return *(*time.Time)(unsafe.Pointer(&words))
}

// Since returns the monotonic time since t.
func (c WallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
