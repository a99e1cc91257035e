package eviction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/nodestatus"

	"github.com/kubeparts/kubeparts/status/nodestatus"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// setter is a function of the kubelet that writes one condition into a node's status.
type setter func(now func() time.Time, pressed func() bool, record func(klog.Logger, string, string)) kubeletstatus.Setter

// statusFacts records the node status and the node events when a condition starts or ceases
// to hold.
func statusFacts(f judge.Facts, holds bool) {
	for c, set := range map[corev1.NodeConditionType]setter{
		corev1.NodeMemoryPressure: kubeletstatus.MemoryPressureCondition,
		corev1.NodeDiskPressure:   kubeletstatus.DiskPressureCondition,
		corev1.NodePIDPressure:    kubeletstatus.PIDPressureCondition,
	} {
		node := &corev1.Node{}
		event := ""
		err := set(func() time.Time { return time.Time{} }, func() bool { return holds }, func(_ klog.Logger, _, reason string) { event = reason })(context.Background(), node)
		if err != nil {
			event = err.Error()
		}
		for _, condition := range node.Status.Conditions {
			f["status "+string(c)] = statusText(condition, event)
		}
	}
}

// oursStatusFacts is statusFacts with our functions.
func oursStatusFacts(f judge.Facts, holds bool) {
	facts := nodestatus.Facts{}
	if holds {
		facts.Pressure = conditionTypes()
	}
	status := nodestatus.Next(nil, facts, time.Time{})
	for i, event := range nodestatus.Events("", nil, status) {
		f["status "+string(status.Conditions[i].Type)] = statusText(status.Conditions[i], event.Reason)
	}
}

func statusText(c corev1.NodeCondition, event string) string {
	return fmt.Sprintf("%s=%s %s %q event %s", c.Type, c.Status, c.Reason, c.Message, event)
}
