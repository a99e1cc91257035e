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
	// Quantity is the amount, Format the format in which it is printed. If the amount is
	// not a whole number, Quantity is rounded up. If the amount does not fit into 64 bits,
	// Quantity is the largest or smallest int64. In both cases, Text is the exact amount,
	// such as 1500m.
	Quantity int64
	Format   resource.Format
	Text     string
	// Fraction, if not 0, is the amount as a fraction of the capacity: 0.1 is ten percent.
	Fraction float32
}

// Of returns the amount for the given capacity. Fractions are float32, as in the kubelet,
// and not exact: ten percent of 10 is 1, but ten percent of 1000000000000 is 100000001490.
func (v Value) Of(capacity int64) int64 {
	if v.Fraction != 0 {
		if part := float64(capacity) * float64(v.Fraction); part < math.MaxInt64 {
			return int64(part)
		}
		return math.MaxInt64
	}
	return v.Quantity
}

// plus returns a+b, or the largest int64 if the sum overflows: a negative sum would be a
// negative usage, or a target that is always reached.
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

// rounded returns an amount of the signal for people. The text has at least two digits before the
// decimal point, or is a whole number of units. rounded rounds the amount down, so that an amount
// below a threshold is not printed as the threshold.
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

// Threshold is an amount of a signal that must stay available. Thresholds are comparable.
type Threshold struct {
	// Signal is the signal that the threshold applies to.
	Signal Signal `json:"signal"`
	// Value is the amount: the threshold is met when less than Value is available.
	Value Value `json:"value"`
	// GracePeriod is how long the threshold must be met before a pod is evicted. A
	// threshold without a grace period is hard, a threshold with a grace period is soft.
	GracePeriod time.Duration `json:"gracePeriod,omitzero"`
	// MinReclaim is how much more than Value must be available until a due threshold is no
	// longer due.
	MinReclaim Value `json:"minReclaim,omitzero"`
}

// Hard reports whether the threshold is hard: pods are then evicted as soon as it is met,
// and get one second to terminate.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns the threshold as in the kubelet's flags, followed by its grace period.
func (t Threshold) String() string {
	s := string(t.Signal) + "<" + t.Value.String()
	if t.Hard() {
		return s + " (hard)"
	}
	return s + " (soft, " + t.GracePeriod.String() + ")"
}

// thresholdsFor returns the thresholds for the node's layout. Writable layers are always
// on the filesystem of nodefs or of imagefs. The containerfs thresholds are copies of the
// thresholds of that filesystem.
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

// Reserved returns the memory and the ephemeral storage that the hard thresholds reserve,
// so that pods cannot use them. capacity is the capacity of the node. If a signal has
// several hard thresholds, Reserved uses the last of them.
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
