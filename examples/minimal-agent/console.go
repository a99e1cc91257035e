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

// console prints one line for each change of a pod or the node. It is safe for concurrent use.
type console struct {
	mu  sync.Mutex
	out io.Writer
}

// changed prints a change of a pod's status. It ignores changes that have no effect on the printed
// line, such as changes of timestamps.
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

// removed prints that a pod was removed from the node. The UID distinguishes the pod from another pod
// of the same name, which may already run.
func (c *console) removed(pod *corev1.Pod) {
	c.line(pod.Namespace, pod.Name, "removed, UID "+string(pod.UID))
}

func (c *console) line(namespace, name, text string) {
	c.printf("%s %s/%s %s", time.Now().Format("15:04:05.000"), namespace, name, text)
}

// node prints a line about the node.
func (c *console) node(name, text string) {
	c.printf("%s node %s %s", time.Now().Format("15:04:05.000"), name, text)
}

// pressure prints the pressure conditions of the node that are true.
func (c *console) pressure(name string, conditions []corev1.NodeConditionType) {
	text := "is no longer under pressure"
	if len(conditions) > 0 {
		text = fmt.Sprintf("is under pressure: %v", conditions)
	}
	c.node(name, text)
}

// event prints an event of the node or of a pod.
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

// printf prints one line. Control characters in the arguments are replaced by spaces.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, printable.Line(fmt.Sprintf(format, args...)))
}

// summary returns the parts of a status that the console prints. The method changed prints a status
// only if its summary has changed.
func summary(s *corev1.PodStatus) string { return string(s.Phase) + details(s) }

// details returns readiness, restarts, address, the states of containers that do not run, and the
// reason and message of the status.
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

// stateOf returns the state of a container that is waiting or terminated, else the empty string.
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
