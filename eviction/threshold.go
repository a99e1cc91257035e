package eviction

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is an amount: of bytes or a count, or a part of what there is in all.
// The zero value is nothing.
type Value struct {
	// Quantity is the amount, and Format how to write it down. Of an amount that is not
	// a whole number of 64 bits, it is the next larger one or the largest, and Text is
	// the amount itself, such as 1500m.
	Quantity int64
	Format   resource.Format
	Text     string
	// Fraction is the part of the capacity if it is not 0: 0.1 are ten percent.
	Fraction float32
}

// Of returns the amount for the given capacity. A fraction is taken of it in
// floating point, as the kubelet does: ten percent of 10 are 1, and of
// 1000000000000 a few thousand more than a tenth.
func (v Value) Of(capacity int64) int64 {
	if v.Fraction != 0 {
		if part := float64(capacity) * float64(v.Fraction); part < math.MaxInt64 {
			return int64(part)
		}
		return math.MaxInt64
	}
	return v.Quantity
}

// plus adds two amounts, up to the largest number: a sum that wraps is a negative
// usage, or a target that is reached already.
func plus(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// String returns what the value would be in a configuration.
func (v Value) String() string {
	if v.Fraction != 0 {
		return strconv.FormatFloat(float64(v.Fraction*100), 'g', 6, 32) + "%"
	}
	return v.text(0)
}

// MarshalText returns String.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// text returns the amount for the given capacity as messages have it.
func (v Value) text(capacity int64) string {
	switch {
	case v.Text != "":
		return v.Text
	case v.Fraction != 0 || v.Format == "":
		return bytesText(v.Of(capacity))
	default:
		return resource.NewQuantity(v.Quantity, v.Format).String()
	}
}

// amount writes down an amount of the signal as messages have it.
func (s Signal) amount(n int64) string {
	format := resource.DecimalSI
	if s.inBytes() {
		format = resource.BinarySI
	}
	return resource.NewQuantity(n, format).String()
}

// Threshold is an amount of a signal below which something has to be done. It is
// comparable.
type Threshold struct {
	// Signal is what the threshold is on.
	Signal Signal `json:"signal"`
	// Value is the amount: the threshold is met when less is available.
	Value Value `json:"value"`
	// GracePeriod is how long it has to be met before a pod is evicted. A
	// threshold without one is hard, one with it soft.
	GracePeriod time.Duration `json:"gracePeriod,omitzero"`
	// MinReclaim is how much more than Value is to be available before reclaiming
	// ends.
	MinReclaim Value `json:"minReclaim,omitzero"`
}

// Hard says whether pods are evicted as soon as the threshold is met, and get no
// time to end.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns the threshold as a flag has it, with its grace period.
func (t Threshold) String() string {
	s := string(t.Signal) + "<" + t.Value.String()
	if t.Hard() {
		return s + " (hard)"
	}
	return s + " (soft, " + t.GracePeriod.String() + ")"
}

// thresholdsFor returns the thresholds with the node's layout: the filesystem of the
// writable layers is always the same as one of the two others, and has the thresholds of
// that.
func thresholdsFor(thresholds []Threshold, layout Layout) (all []Threshold) {
	for _, t := range thresholds {
		if t.Signal == ContainerFSAvailable || t.Signal == ContainerFSInodesFree {
			continue
		}
		all = append(all, t)
		for _, s := range []Signal{ContainerFSAvailable, ContainerFSInodesFree} {
			if t.Signal == s.source(layout) {
				all = append(all, Threshold{s, t.Value, t.GracePeriod, t.MinReclaim})
			}
		}
	}
	return all
}

// Reserved returns what the hard thresholds keep free of a node's capacity, and pods therefore
// can't use: memory and ephemeral storage. The last of several thresholds on the same signal
// counts.
func Reserved(capacity corev1.ResourceList, thresholds []Threshold) corev1.ResourceList {
	reserved := corev1.ResourceList{}
	for _, t := range thresholds {
		var name corev1.ResourceName
		switch {
		case !t.Hard():
			continue
		case t.Signal == MemoryAvailable:
			name = corev1.ResourceMemory
		case t.Signal == NodeFSAvailable:
			name = corev1.ResourceEphemeralStorage
		default:
			continue
		}
		whole := capacity[name]
		reserved[name] = *resource.NewQuantity(t.Value.Of(whole.Value()), resource.BinarySI)
	}
	return reserved
}
