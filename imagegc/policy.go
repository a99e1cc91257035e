package imagegc

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Policy configures when images are deleted and which are protected for a while. The zero
// value has the kubelet's defaults.
type Policy struct {
	// HighThresholdPercent is the usage of the filesystem, 0 to 100, at or above which a
	// collection frees space. Default 85. With 100 and no MaxAge, [Manager.Run] only
	// records the ages of images.
	HighThresholdPercent *int
	// LowThresholdPercent is the usage down to which a collection frees space, at most
	// HighThresholdPercent. Default 80.
	LowThresholdPercent *int
	// MinAge is how long an image is protected after it was first seen. Default 2m.
	MinAge *time.Duration
	// MinUnused is how long an image is protected after it was last seen in use, however
	// old the image is: if a workload is being replaced, its image may be needed again
	// soon (kubernetes#132372). Default 0.
	MinUnused time.Duration
	// MaxAge is how long an image may be unused before it is deleted even if there is
	// enough space. The time counts from when the image was last seen in use or, if it was
	// never used, first seen. Default 0: no limit. Unlike in the kubelet, MaxAge may be
	// shorter than MinAge, which applies in addition.
	MaxAge time.Duration
}

const (
	defaultHigh   = 85
	defaultLow    = 80
	defaultMinAge = 2 * time.Minute
)

// limits is a Policy with its defaults applied.
type limits struct {
	high, low                 int
	minAge, minUnused, maxAge time.Duration
}

func (p Policy) limits() limits {
	return limits{
		high:      valueOr(p.HighThresholdPercent, defaultHigh),
		low:       valueOr(p.LowThresholdPercent, defaultLow),
		minAge:    valueOr(p.MinAge, defaultMinAge),
		minUnused: p.MinUnused,
		maxAge:    p.MaxAge,
	}
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Validate returns every problem with p, joined. Errors about the thresholds have the
// kubelet's text.
func (p Policy) Validate() error {
	var errs []error
	l := p.limits()
	if l.high < 0 || l.high > 100 {
		errs = append(errs, fmt.Errorf("invalid HighThresholdPercent %d, must be in range [0-100]", l.high))
	}
	if l.low < 0 || l.low > 100 {
		errs = append(errs, fmt.Errorf("invalid LowThresholdPercent %d, must be in range [0-100]", l.low))
	}
	if l.low > l.high {
		errs = append(errs, fmt.Errorf("LowThresholdPercent %d can not be higher than HighThresholdPercent %d", l.low, l.high))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"MinAge", l.minAge}, {"MinUnused", l.minUnused}, {"MaxAge", l.maxAge}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("invalid %s %v, must not be negative", d.name, d.value))
		}
	}
	if l.maxAge > 0 && l.maxAge <= l.minUnused {
		errs = append(errs, fmt.Errorf("MaxAge %v must be longer than MinUnused %v", l.maxAge, l.minUnused))
	}
	return errors.Join(errs...)
}

// bytesToFree returns how many bytes must be freed until the usage is at the low threshold. It
// returns 0 in these cases:
//
//   - The usage is below the high threshold.
//   - The usage reaches the high threshold only because [Usage.Percent] rounds up, and the space
//     that the low threshold requires is already available.
//   - u is zero, which means that the filesystem was not measured.
func (l limits) bytesToFree(u Usage) uint64 {
	if u == (Usage{}) || u.Percent() < l.high {
		return 0
	}
	return missing(u, percentOf(u.CapacityBytes, 100-l.low))
}

// missing returns how many bytes must be freed until the given number of bytes is
// available.
func missing(u Usage, available uint64) uint64 {
	if u.AvailableBytes >= available {
		return 0
	}
	return available - u.AvailableBytes
}

// percentOf returns percent of n, rounded down, without overflow.
func percentOf(n uint64, percent int) uint64 {
	if percent <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(n, uint64(min(percent, 100)))
	q, _ := bits.Div64(hi, lo, 100)
	return q
}

// saturatingAdd returns a+b, or the largest uint64 if that overflows.
func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return 1<<64 - 1
	}
	return sum
}
