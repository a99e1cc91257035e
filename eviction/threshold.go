package eviction

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is an amount: a number of bytes, a count, or a fraction of the capacity. The zero
// value is zero.
type Value struct {
	// Quantity is the amount, Format how it is printed. If the amount is not a whole
	// number that fits into 64 bits, Quantity is rounded up or the maximum, and Text is
	// the amount as written, such as 1500m.
	Quantity int64
	Format   resource.Format
	Text     string
	// Fraction is the fraction of the capacity, if not 0: 0.1 is ten percent.
	Fraction float32
}

// Of returns the amount for the given capacity. Fractions are float32, as in the kubelet:
// ten percent of 10 are 1, and of 1000000000000 a few thousand more than a tenth.
func (v Value) Of(capacity int64) int64 {
	if v.Fraction != 0 {
		if part := float64(capacity) * float64(v.Fraction); part < math.MaxInt64 {
			return int64(part)
		}
		return math.MaxInt64
	}
	return v.Quantity
}

// plus adds two amounts and returns at most the largest int64: an overflow would give a
// negative usage, or a target that is already reached.
func plus(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// String returns the value as written in a configuration.
func (v Value) String() string {
	if v.Fraction != 0 {
		return strconv.FormatFloat(float64(v.Fraction*100), 'g', 6, 32) + "%"
	}
	return v.text(0)
}

// MarshalText returns String.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// text returns the amount for the given capacity as printed in messages.
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

// amount returns an amount of the signal as printed in messages.
func (s Signal) amount(n int64) string {
	format := resource.DecimalSI
	if s.inBytes() {
		format = resource.BinarySI
	}
	return resource.NewQuantity(n, format).String()
}

// rounded returns an amount of the signal for people, with at least two digits before the
// decimal point unless the amount is a whole number of units. It is rounded down, so that an
// amount below a threshold does not look like the threshold.
func (s Signal) rounded(n int64) string {
	if !s.inBytes() {
		return s.amount(n)
	}
	for i, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		if size := int64(1) << (40 - 10*i); n >= 10*size || n >= size && n%size == 0 {
			tenths := n/size*10 + n%size*10/size
			return strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0") + unit
		}
	}
	return s.amount(n)
}

// Threshold is an amount of a signal that must stay available. It is comparable.
type Threshold struct {
	// Signal is the signal that the threshold applies to.
	Signal Signal `json:"signal"`
	// Value is the amount: the threshold is met when less is available.
	Value Value `json:"value"`
	// GracePeriod is how long the threshold must be met before a pod is evicted. A
	// threshold without a grace period is hard, one with it is soft.
	GracePeriod time.Duration `json:"gracePeriod,omitzero"`
	// MinReclaim is how much more than Value must be available before reclaiming ends.
	MinReclaim Value `json:"minReclaim,omitzero"`
}

// Hard reports whether pods are evicted as soon as the threshold is met, with a grace
// period of one second.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns the threshold as in the kubelet's flags, followed by its grace period.
func (t Threshold) String() string {
	s := string(t.Signal) + "<" + t.Value.String()
	if t.Hard() {
		return s + " (hard)"
	}
	return s + " (soft, " + t.GracePeriod.String() + ")"
}

// thresholdsFor returns the thresholds for the node's layout. The filesystem of the
// writable layers is always the node's or the image filesystem, and gets its thresholds.
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

// Reserved returns what the hard thresholds keep free of a node's capacity, so that pods
// can't use it: memory and ephemeral storage. If there are several thresholds for one
// signal, the last one counts.
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
