package commands

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

const (
	barWidth = 24
	// shownWarnings is the maximum number of warnings that the command status prints.
	shownWarnings = 5
)

func (p Program) status() command {
	var conn connection
	var format output
	return command{
		name: "status", summary: "show the node, the parts of the agent, eviction signals, pods that are not ready, and recent warnings",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML, formatWide)
		},
		run: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			status, err := client.Status(ctx)
			switch {
			case err != nil:
				return err
			case format.data():
				return p.print(format, status)
			}
			p.showStatus(status, format == formatWide)
			return nil
		},
	}
}

// showStatus prints a status. If wide is true, it also prints healthy pods, and a row for each
// signal without a value.
func (p Program) showStatus(s api.Status, wide bool) {
	l := p.screenStyle()
	head := newTable(p.Stdout, l)
	head.row(plain, "NODE", nodeLine(s))
	head.row(plain, "RUNTIME", s.Runtime.Name+" "+s.Runtime.Version+" at "+s.Runtime.Endpoint)
	head.row(plain, "AGENT", fmt.Sprintf("%s %s, up %s, %s", s.Agent.Name, s.Agent.Version, age(s.Now, &s.Agent.Started), plural(s.Agent.Adopted, "adopted pod")))
	head.row(plain, "PODS", podsLine(s.Pods))
	managers(head, s)
	for _, problem := range s.Problems {
		head.row(yellow, "MANIFEST", problem)
	}
	head.flush()
	showSignals(p.Stdout, l, s, wide)
	showPods(p.Stdout, l, s, wide)
	showWarnings(p.Stdout, l, s)
}

func nodeLine(s api.Status) string {
	parts := []string{s.Node.Name}
	for _, c := range s.Node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			parts = append(parts, "Ready")
		case c.Type == corev1.NodeReady:
			parts = append(parts, "NotReady: "+c.Message)
		case c.Status == corev1.ConditionTrue:
			parts = append(parts, string(c.Type))
		}
	}
	if a := s.Node.Status.Allocatable; len(a) > 0 {
		parts = append(parts, fmt.Sprintf("%s cpu, %s memory and %s pods allocatable", a.Cpu(), size(a.Memory().Value()), a.Pods()))
	}
	return strings.Join(parts, ", ")
}

func podsLine(pods []api.Pod) string {
	counts, restarts := map[corev1.PodPhase]int{}, int32(0)
	for _, pod := range pods {
		counts[pod.Phase]++
		restarts += pod.Restarts
	}
	var parts []string
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		if n := counts[phase]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
		}
	}
	if restarts > 0 {
		parts = append(parts, plural(int(restarts), "restart"))
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", len(pods), strings.Join(parts, ", ")), ": ")
}

// managers adds a row for each manager that fails, and one row for all other managers.
func managers(t *table, s api.Status) {
	var healthy []string
	for _, m := range s.Managers {
		switch {
		case !m.OK:
			t.row(red, "FAILED", m.Name+": "+m.Message)
		case len(s.Problems) > 0 && m.Message == strings.Join(s.Problems, "; "):
			healthy = append(healthy, m.Name+" ("+plural(len(s.Problems), "problem")+")") // the problems have their own rows
		case m.Message != "":
			healthy = append(healthy, m.Name+" ("+m.Message+")")
		default:
			healthy = append(healthy, m.Name)
		}
	}
	if len(healthy) > 0 {
		t.row(plain, "OK", strings.Join(healthy, ", "))
	}
}

// showSignals prints a row for each eviction signal. If the parameter all is false, signals without
// a value have no rows: showSignals lists their names in one line.
func showSignals(out io.Writer, l style, s api.Status, all bool) {
	if len(s.Signals) == 0 {
		return
	}
	fmt.Fprintln(out)
	t := newTable(out, l)
	var unknown []string
	for _, signal := range s.Signals {
		if signal.Time == nil && !all {
			unknown = append(unknown, signal.Name)
			continue
		}
		limits := []string{}
		for _, threshold := range signal.Thresholds {
			text := threshold.Text
			if threshold.GraceSeconds > 0 {
				text += fmt.Sprintf(" for %gs", threshold.GraceSeconds)
			}
			if threshold.Since != nil {
				text += " MET for " + age(s.Now, threshold.Since)
			}
			limits = append(limits, text)
		}
		left := "unknown"
		if signal.Time != nil {
			left = amount(signal.Name, signal.Available) + " of " + amount(signal.Name, signal.Capacity)
		}
		t.row(pressure(signal), signal.Name, bar(signal, barWidth), left, strings.Join(limits, ", "))
	}
	t.flush()
	if len(unknown) > 0 {
		fmt.Fprintln(out, l.line(dim, "unknown: "+strings.Join(unknown, ", ")))
	}
}

// showPods prints the pods that are not healthy. If the parameter all is true, it prints every pod.
func showPods(out io.Writer, l style, s api.Status, all bool) {
	var shown []api.Pod
	for _, pod := range s.Pods {
		if all || !isHealthy(pod) {
			shown = append(shown, pod)
		}
	}
	if len(shown) == 0 {
		return
	}
	fmt.Fprintln(out)
	podTable(out, l, s, shown, false)
}

// isHealthy reports whether a pod has succeeded, or is shown as Running and all its regular and
// sidecar containers are ready.
func isHealthy(p api.Pod) bool {
	return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodRunning && p.State == string(corev1.PodRunning) && p.Ready >= containersOf(p)
}

// containersOf returns the number of regular and sidecar containers of a pod. api.Pod.Ready counts
// the same kinds of containers.
func containersOf(p api.Pod) (n int) {
	for _, c := range p.Containers {
		if c.Kind == "main" || c.Kind == "sidecar" {
			n++
		}
	}
	return n
}

// showWarnings prints the newest warnings of all pods.
func showWarnings(out io.Writer, l style, s api.Status) {
	var all []api.Event
	for _, pod := range s.Pods {
		for _, e := range pod.Events {
			if e.Type == corev1.EventTypeWarning {
				all = append(all, e)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out)
	sortNewestFirst(all)
	eventTable(out, l, s.Now, all[:min(len(all), shownWarnings)])
}
