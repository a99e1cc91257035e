package fakecri

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Growth is something that a program takes more of as it runs. The zero Growth
// takes nothing.
type Growth struct {
	// Start is how much it takes at once.
	Start uint64
	// PerSecond is how much it takes more every second.
	PerSecond uint64
	// Max is where it stops. Zero: never.
	Max uint64
}

// Validate reports what is wrong with g.
func (g Growth) Validate() error {
	if g.Max != 0 && g.Max < g.Start {
		return fmt.Errorf("field Max: %d is less than Start, %d", g.Max, g.Start)
	}
	return nil
}

// at returns how much is taken at an age.
func (g Growth) at(age time.Duration) uint64 {
	total := saturatingAdd(g.Start, times(g.PerSecond, age))
	if g.Max != 0 {
		total = min(total, g.Max)
	}
	return total
}

// exceeds returns the first age at which more than limit is taken, and false if
// that never is.
func (g Growth) exceeds(limit uint64) (time.Duration, bool) {
	if g.Start > limit {
		return 0, true
	}
	if g.Max != 0 && g.Max <= limit {
		return 0, false
	}
	if limit == math.MaxUint64 {
		return 0, false
	}
	return lasting(limit-g.Start+1, g.PerSecond)
}

// times returns how much a rate per second makes in a time, at most the largest
// number. A negative time is none.
func times(perSecond uint64, d time.Duration) uint64 {
	hi, lo := bits.Mul64(perSecond, uint64(max(d, 0)))
	if hi >= uint64(time.Second) {
		return math.MaxUint64
	}
	total, _ := bits.Div64(hi, lo, uint64(time.Second))
	return total
}

// lasting returns the shortest time in which a rate per second makes an amount,
// and false if that is longer than a Duration can be.
func lasting(amount, perSecond uint64) (time.Duration, bool) {
	hi, lo := bits.Mul64(amount, uint64(time.Second))
	if hi >= perSecond { // a rate of zero included
		return 0, false
	}
	d, rest := bits.Div64(hi, lo, perSecond)
	if d >= math.MaxInt64 {
		return 0, false
	}
	if rest > 0 {
		d++
	}
	return time.Duration(d), true
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
