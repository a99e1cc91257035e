package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/status"
)

// console prints one line for each transition of a pod.
type console struct {
	mu  sync.Mutex
	out io.Writer
}

// changed prints what became of a pod, if a reader would care: times and other
// details that move by themselves make no line.
func (c *console) changed(change status.Change) {
	before, after := &change.Old, &change.New
	if summary(before) == summary(after) {
		return
	}
	phases := string(after.Phase)
	if before.Phase != "" && before.Phase != after.Phase {
		phases = fmt.Sprintf("%s -> %s", before.Phase, after.Phase)
	}
	c.line(change.Pod.Namespace, change.Pod.Name, phases+details(after))
}

// gone prints that nothing is left of a pod.
func (c *console) gone(namespace, name string) { c.line(namespace, name, "removed") }

func (c *console) line(namespace, name, text string) {
	c.say("%s %s/%s %s", time.Now().Format("15:04:05.000"), namespace, name, text)
}

// node prints something about the node.
func (c *console) node(name, text string) {
	c.say("%s node %s %s", time.Now().Format("15:04:05.000"), name, text)
}

// pressure prints what the node is short of.
func (c *console) pressure(name string, conditions []corev1.NodeConditionType) {
	text := "has enough of everything"
	if len(conditions) > 0 {
		text = fmt.Sprintf("is short: %v", conditions)
	}
	c.node(name, text)
}

// event prints an event.
func (c *console) event(about *corev1.ObjectReference, reason, message string) {
	if about.FieldPath != "" {
		reason += " " + about.FieldPath
	}
	text := reason + ": " + message
	if about.Kind == "Node" {
		c.node(about.Name, text)
		return
	}
	c.line(about.Namespace, about.Name, text)
}

// say prints one line, whatever the arguments contain.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, printable.Line(fmt.Sprintf(format, args...)))
}

// summary is what makes two statuses different to a reader.
func summary(s *corev1.PodStatus) string { return string(s.Phase) + details(s) }

// details lists readiness, restarts, address and what containers wait for.
func details(s *corev1.PodStatus) string {
	var b strings.Builder
	ready, restarts := 0, int32(0)
	for i := range s.ContainerStatuses {
		if s.ContainerStatuses[i].Ready {
			ready++
		}
		restarts += s.ContainerStatuses[i].RestartCount
	}
	fmt.Fprintf(&b, " ready=%d/%d restarts=%d", ready, len(s.ContainerStatuses), restarts)
	if s.PodIP != "" {
		fmt.Fprintf(&b, " ip=%s", s.PodIP)
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			b.WriteString(stateOf(&list[i]))
		}
	}
	if s.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", s.Reason)
	}
	if s.Message != "" {
		fmt.Fprintf(&b, " message=%q", s.Message)
	}
	return b.String()
}

// stateOf says what a container that does not run is doing.
func stateOf(c *corev1.ContainerStatus) string {
	switch {
	case c.State.Waiting != nil && c.State.Waiting.Reason != "":
		return fmt.Sprintf(" %s=%s", c.Name, c.State.Waiting.Reason)
	case c.State.Terminated != nil:
		return fmt.Sprintf(" %s=%s(%d)", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode)
	default:
		return ""
	}
}
