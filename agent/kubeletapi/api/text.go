package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// ExplanationText formats an explanation as text. Text from a container or the runtime
// can't start a new line in the result, and its control characters are replaced by
// spaces.
func ExplanationText(e Explanation) string {
	var b strings.Builder
	state := e.Pod.State
	if s := string(e.Pod.Phase); s != "" && s != state {
		state += " (" + s + ")"
	}
	b.WriteString(printable.Line(fmt.Sprintf("%s/%s is %s", e.Pod.Namespace, e.Pod.Name, state)))
	if n := mainContainers(e.Pod); n > 0 { // an invalid manifest has no containers
		restarts := "restarts"
		if e.Pod.Restarts == 1 {
			restarts = "restart"
		}
		fmt.Fprintf(&b, ", %d of %d containers ready, %d %s", e.Pod.Ready, n, e.Pod.Restarts, restarts)
	}
	b.WriteByte('\n')
	section(&b, "Why", e.Why)
	var next []string
	for _, s := range e.Next {
		text := s.What
		if s.At != nil {
			text = s.At.Local().Format(time.TimeOnly) + " " + text
		}
		next = append(next, text)
	}
	section(&b, "Next", next)
	section(&b, "Plan", lines(e.Plan))
	section(&b, "Eviction", lines(e.EvictionOrder))
	var events []string
	for _, ev := range e.Pod.Events {
		text := fmt.Sprintf("%s %s %s: %s", ev.Time.Local().Format(time.TimeOnly), ev.Type, ev.Reason, ev.Message)
		if ev.Count > 1 {
			text += fmt.Sprintf(" (%d times)", ev.Count)
		}
		events = append(events, text)
	}
	section(&b, "Events", events)
	return b.String()
}

func mainContainers(p Pod) (n int) {
	for _, c := range p.Containers {
		if c.Kind == "main" || c.Kind == "sidecar" {
			n++
		}
	}
	return n
}

func section(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n", title)
	for _, item := range items {
		fmt.Fprintf(b, "  - %s\n", printable.Lines(strings.TrimSpace(item), "    "))
	}
}

func lines(text string) (out []string) {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}
