package nodestatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// pressureTexts are the reason and the message of a pressure condition, and the reason of
// the event about a change of its status.
type pressureTexts struct{ reason, message, event string }

func textsOf(kind corev1.NodeConditionType, holds bool) pressureTexts {
	switch {
	case kind == corev1.NodeMemoryPressure && holds:
		return pressureTexts{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"}
	case kind == corev1.NodeMemoryPressure:
		return pressureTexts{"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"}
	case kind == corev1.NodeDiskPressure && holds:
		return pressureTexts{"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"}
	case kind == corev1.NodeDiskPressure:
		return pressureTexts{"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"}
	case holds:
		return pressureTexts{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"}
	default:
		return pressureTexts{"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"}
	}
}

// pressure returns a pressure condition, without times.
func pressure(kind corev1.NodeConditionType, holds bool) corev1.NodeCondition {
	texts := textsOf(kind, holds)
	c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: texts.reason, Message: texts.message}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// Event is an event about a node.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason and Message are the same as in the kubelet.
	Reason, Message string
}

// Events returns the events about a change of a node's status, in the kubelet's order: a reboot,
// and changes of conditions. previous is nil for a new node.
func Events(node string, previous, next *corev1.NodeStatus) (events []Event) {
	if previous == nil {
		previous = &corev1.NodeStatus{}
	}
	if before, now := previous.NodeInfo.BootID, next.NodeInfo.BootID; before != "" && before != now {
		events = append(events, Event{
			Type: corev1.EventTypeWarning, Reason: "Rebooted", Message: fmt.Sprintf("Node %s has been rebooted, boot id: %s", node, now),
		})
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady,
	} {
		before, now := statusOf(previous, kind), statusOf(next, kind)
		// There is no event for the first condition Ready of a node.
		if before == now || kind == corev1.NodeReady && before == "" {
			continue
		}
		reason := textsOf(kind, now == corev1.ConditionTrue).event
		if kind == corev1.NodeReady {
			reason = "NodeNotReady"
			if now == corev1.ConditionTrue {
				reason = "NodeReady"
			}
		}
		events = append(events, statusEvent(node, reason))
	}
	return events
}

// SchedulingEvent returns the event about a change of the node's field spec.unschedulable.
func SchedulingEvent(node string, unschedulable bool) Event {
	reason := "NodeSchedulable"
	if unschedulable {
		reason = "NodeNotSchedulable"
	}
	return statusEvent(node, reason)
}

// statusEvent returns an event whose message repeats its reason.
func statusEvent(node, reason string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", node, reason)}
}

func statusOf(s *corev1.NodeStatus, kind corev1.NodeConditionType) corev1.ConditionStatus {
	if i := find(s.Conditions, kind); i >= 0 {
		return s.Conditions[i].Status
	}
	return ""
}
