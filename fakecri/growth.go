package fakecri

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Growth is the usage of a resource that grows while a program runs. The zero Growth means
// no usage.
type Growth struct {
	// Start is the usage at the start.
	Start uint64
	// PerSecond is the growth per second.
	PerSecond uint64
	// Max is the largest usage. Zero means no maximum.
	Max uint64
}

// Validate returns an error if Max is less than Start.
func (g Growth) Validate() error {
	if g.Max != 0 && g.Max < g.Start {
		return fmt.Errorf("field Max: %d is less than Start, %d", g.Max, g.Start)
	}
	return nil
}

// at returns the usage at an age of the program.
func (g Growth) at(age time.Duration) uint64 {
	total := saturatingAdd(g.Start, amountAfter(g.PerSecond, age))
	if g.Max != 0 {
		total = min(total, g.Max)
	}
	return total
}

// exceeds returns the first age at which the usage exceeds limit. It reports false if that
// never happens.
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
	return timeFor(limit-g.Start+1, g.PerSecond)
}

// amountAfter returns the amount that a rate per second adds up to in d, limited to the
// largest uint64. A negative d counts as 0.
func amountAfter(perSecond uint64, d time.Duration) uint64 {
	hi, lo := bits.Mul64(perSecond, uint64(max(d, 0)))
	if hi >= uint64(time.Second) {
		return math.MaxUint64
	}
	total, _ := bits.Div64(hi, lo, uint64(time.Second))
	return total
}

// timeFor returns the shortest time in which a rate per second adds up to an amount. It
// reports false if that time is longer than the longest Duration.
func timeFor(amount, perSecond uint64) (time.Duration, bool) {
	hi, lo := bits.Mul64(amount, uint64(time.Second))
	if hi >= perSecond { // includes a rate of zero
		return 0, false
	}
	d, remainder := bits.Div64(hi, lo, perSecond)
	if d >= math.MaxInt64 {
		return 0, false
	}
	if remainder > 0 {
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
