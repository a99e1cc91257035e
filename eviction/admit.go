package eviction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Admit refuses pods while the node is under pressure. It always admits critical pods.
// Under disk or PID pressure it refuses all other pods. Under memory pressure alone it
// refuses only BestEffort pods that don't tolerate the memory-pressure taint. The same
// rules apply when a pod is resized.
func (m *Manager) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if attrs.Pod == nil {
		return lifecycle.PodAdmitResult{Reason: lifecycle.UnexpectedAdmissionError, Message: "admission request has no pod"}
	}
	conditions := m.published()
	if admits(attrs.Pod, conditions) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	message := fmt.Sprintf("The node had condition: %v. ", conditions)
	m.cfg.Observer.Refused(attrs.Pod, message)
	return lifecycle.PodAdmitResult{Reason: Reason, Message: message}
}

// admits reports whether the pod may start under the given conditions.
func admits(pod *corev1.Pod, conditions []corev1.NodeConditionType) bool {
	if len(conditions) == 0 || podspec.IsCritical(pod) {
		return true
	}
	if !slices.Equal(conditions, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
		return false
	}
	return podspec.QOSClass(pod) != corev1.PodQOSBestEffort ||
		slices.ContainsFunc(pod.Spec.Tolerations, toleratesMemoryPressure)
}

// toleratesMemoryPressure reports whether t tolerates the memory-pressure taint, which
// has no value.
func toleratesMemoryPressure(t corev1.Toleration) bool {
	if t.Effect != "" && t.Effect != corev1.TaintEffectNoSchedule {
		return false
	}
	if t.Key != "" && t.Key != corev1.TaintNodeMemoryPressure {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == ""
	default:
		return false
	}
}

// published returns the node conditions that are true. In [DryRun] it returns no conditions.
func (m *Manager) published() []corev1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Mode == DryRun {
		return nil
	}
	return m.conditions
}

// IsUnderMemoryPressure reports whether the condition MemoryPressure is true. In [DryRun]
// it returns false.
func (m *Manager) IsUnderMemoryPressure() bool { return m.isUnder(corev1.NodeMemoryPressure) }

// IsUnderDiskPressure reports whether the condition DiskPressure is true. In [DryRun] it
// returns false.
func (m *Manager) IsUnderDiskPressure() bool { return m.isUnder(corev1.NodeDiskPressure) }

// IsUnderPIDPressure reports whether the condition PIDPressure is true. In [DryRun] it
// returns false.
func (m *Manager) IsUnderPIDPressure() bool { return m.isUnder(corev1.NodePIDPressure) }

func (m *Manager) isUnder(c corev1.NodeConditionType) bool {
	return slices.Contains(m.published(), c)
}
