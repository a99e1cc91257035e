package eviction

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawPolicy draws a policy of ours that may be invalid.
func drawPolicy(d *judge.Draw) (p eviction.Policy) {
	value := func() eviction.Value {
		if d.Chance(50) {
			return eviction.Value{Fraction: judge.Pick[float32](d, 0.1, 0.5, 1, 1.25, -0.5)}
		}
		return eviction.Value{Quantity: judge.Pick[int64](d, 1000, 1, 0, -1, 2000)}
	}
	for range d.Between(0, 3) {
		t := eviction.Threshold{
			Signal: judge.Pick[eviction.Signal](d, eviction.MemoryAvailable, eviction.NodeFSInodesFree, eviction.ContainerFSInodesFree, "x"),
			Value:  value(), GracePeriod: judge.Pick(d, 0, time.Second, -1),
		}
		if d.Chance(50) {
			t.MinReclaim = value()
		}
		p.Thresholds = append(p.Thresholds, t)
		if d.Chance(20) {
			p.Thresholds = append(p.Thresholds, t)
		}
	}
	duration := func() time.Duration { return judge.Pick(d, 0, time.Second, 1, -1) }
	p.PressureTransitionPeriod, p.StatsGrace, p.MaxObservationAge = duration(), duration(), duration()
	p.ReclaimInterval, p.ReclaimTimeout = duration(), duration()
	p.MaxParallelEvictions = judge.Pick(d, 0, 1, 7, -1)
	return p
}

// policyMistakes returns all mistakes in a policy.
func policyMistakes(p *eviction.Policy) string {
	var lines []string
	for i, t := range p.Thresholds {
		name := fmt.Sprintf("field Thresholds[%d]", i)
		isTwice := false
		for _, o := range p.Thresholds[:i] {
			isTwice = isTwice || o == t
		}
		amount, reclaim := float64(t.Value.Quantity)+float64(t.Value.Fraction), float64(t.MinReclaim.Quantity)+float64(t.MinReclaim.Fraction)
		text := string(t.Signal) + "<" + t.Value.String() + " (hard)"
		if t.GracePeriod != 0 {
			text = strings.Replace(text, "hard", "soft, "+t.GracePeriod.String(), 1)
		}
		switch {
		case t.Signal == "x":
			lines = append(lines, name+`.Signal: unknown signal "x"`)
		case amount <= 0:
			lines = append(lines, name+".Value: "+t.Value.String()+" is not positive")
		case t.Value.Fraction > 1:
			lines = append(lines, name+".Value: 125% is more than 100%")
		case t.GracePeriod < 0 || reclaim < 0:
			lines = append(lines, name+": "+text+" has a negative grace period or minimum reclaim")
		case isTwice:
			lines = append(lines, name+": "+text+" is set twice")
		}
	}
	for name, value := range map[string]time.Duration{
		"1PressureTransitionPeriod": p.PressureTransitionPeriod, "2StatsGrace": p.StatsGrace, "3MaxObservationAge": p.MaxObservationAge,
		"4MaxParallelEvictions": time.Duration(p.MaxParallelEvictions), "5ReclaimInterval": p.ReclaimInterval, "6ReclaimTimeout": p.ReclaimTimeout,
	} {
		if value < 0 {
			lines = append(lines, name)
		}
	}
	return sortedFields(lines)
}

// sortedFields sorts the lines and moves those about durations to the end.
func sortedFields(lines []string) string {
	var first, last []string
	for _, place := range "123456" {
		for _, line := range lines {
			if strings.HasPrefix(line, string(place)) {
				last = append(last, "field "+line[1:]+": -1 is negative")
			}
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "field ") {
			first = append(first, line)
		}
	}
	return strings.Join(append(first, last...), "\n")
}
