package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// lookBetween evaluates while the kubelet waits, and records the observations and the
// decision. If our manager would act, the scenario ends.
func (o *oursSide) lookBetween() {
	o.between, o.measured, o.late = true, false, nil
	defer func() { o.between = false }()
	step := o.step
	o.step = nil // the kubelet does not act here
	_, _ = o.manager.Evaluate(o.ctx)
	synctest.Wait()
	o.step = step
	d := o.found
	o.over = !d.IsNoop()
	o.step[betweenFact(betweens(o.step)+1)] = o.betweenText(d)
}

// betweenFact is the name of the fact about the n-th look after a turn.
func betweenFact(n int) string { return fmt.Sprintf("between %d", n) }

// overdue records an overdue pod.
func (o *oursSide) overdue(pod *corev1.Pod, _ eviction.Eviction) { o.late = append(o.late, pod.Name) }

// escalationText prints the shortened termination of a pod.
func escalationText(e *eviction.Eviction) string {
	return fmt.Sprintf("%d s, disruption %t, %q", e.GracePeriodSeconds, e.Disruption, e.Message)
}

// A lookText collects the observations of a look, as text.
type lookText struct{ lines []string }

func (l *lookText) add(what string, words ...string) {
	if len(words) > 0 {
		l.lines = append(l.lines, what+" "+strings.Join(words, " "))
	}
}

func (l *lookText) String() string { return strings.Join(l.lines, "\n") }

func (o *oursSide) betweenText(d *eviction.Decision) string {
	text := &lookText{}
	text.add("at", o.now().String())
	var lines []string
	for i := range d.Thresholds {
		r := &d.Thresholds[i]
		if strings.HasPrefix(string(r.Threshold.Signal), "containerfs.") {
			continue
		}
		line := fmt.Sprintf("%s<%s %s", r.Threshold.Signal, r.Threshold.Value, r.State)
		if !r.Since.IsZero() {
			line += fmt.Sprintf(" since %s short of %d", r.Since.Sub(o.began), r.Shortfall)
		}
		if r.Due {
			line += ", due"
		}
		if r.Due && r.Old {
			line += ", old"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	text.lines = append(text.lines, lines...)
	var words []string
	for _, c := range d.Conditions {
		words = append(words, string(c))
	}
	slices.Sort(words)
	text.add("conditions", words...)
	if o.measured {
		text.add("asks", "for", "figures")
	}
	words = nil
	for _, l := range d.Limits {
		words = append(words, l.Pod.Name)
	}
	text.add("late", o.late...)
	text.add("limits", words...)
	words = nil
	for _, r := range d.Reclaim {
		words = append(words, fmt.Sprintf("%s:%s:%d", strings.Fields(string(r.Action))[2], r.Signal, r.Amount))
	}
	text.add("reclaims", words...)
	words = nil
	for _, uid := range d.Escalate {
		words = append(words, strings.TrimPrefix(string(uid), "uid-"))
	}
	text.add("escalates", words...)
	words = nil
	for i := range d.Candidates {
		words = append(words, d.Candidates[i].Pod.Name)
	}
	text.add("ranking", words...)
	words = nil
	for i := range d.Victims {
		words = append(words, fmt.Sprintf("%s:%d", d.Victims[i].Pod.Name, d.Victims[i].GracePeriodSeconds))
	}
	text.add("evicts for "+string(d.Signal), words...)
	return text.String()
}
