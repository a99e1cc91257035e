package eviction

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// met adds a threshold to a list of thresholds.
func (m *machine) met(list string, t threshold, quantity, available int64) {
	fact := string(t.Signal) + "/" + list
	words := append(strings.Fields(m.step[fact]), t.Value+t.Grace.String()+"="+itoa(available)+"<"+itoa(quantity))
	slices.Sort(words)
	m.step[fact] = strings.Join(words, " ")
}

type pressure interface {
	IsUnderMemoryPressure() bool
	IsUnderDiskPressure() bool
	IsUnderPIDPressure() bool
}

// conditions records the node conditions.
func (m *machine) conditions(p pressure) {
	for c, holds := range map[corev1.NodeConditionType]bool{
		corev1.NodeMemoryPressure: p.IsUnderMemoryPressure(),
		corev1.NodeDiskPressure:   p.IsUnderDiskPressure(),
		corev1.NodePIDPressure:    p.IsUnderPIDPressure(),
	} {
		if holds {
			m.set("condition "+string(c), "true")
		}
	}
}

func isMemory(s eviction.Signal) bool {
	return s == eviction.MemoryAvailable || s == eviction.AllocatableMemoryAvailable
}

// thresholdOf returns the threshold with a quantity.
func (w *world) thresholdOf(s eviction.Signal, quantity int64) (threshold, bool) {
	for _, t := range w.thresholds() {
		if t.Signal != s {
			continue
		}
		if amount(t.Value, w.Figures[w.figureOf(s)].Capacity) == quantity || amount(t.Value, 0) == quantity {
			return t, true
		}
	}
	return threshold{}, false
}

// withoutTwins leaves out thresholds of containerfs that are derived from another threshold
// in the list: both cause the same actions.
func (w *world) withoutTwins(all []threshold) []threshold {
	return slices.DeleteFunc(slices.Clone(all), func(t threshold) bool {
		return slices.ContainsFunc(all, func(o threshold) bool {
			return o.Signal != t.Signal && w.twin(o.Signal) == t.Signal && o.Value == t.Value && o.Grace == t.Grace
		})
	})
}

func textOf(all []threshold) string {
	var words []string
	for _, t := range all {
		words = append(words, t.String())
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (t threshold) String() string {
	if t.Grace == 0 {
		return string(t.Signal) + "<" + t.Value
	}
	return string(t.Signal) + "<" + t.Value + "(" + t.Grace.String() + ")"
}
