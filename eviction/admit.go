package eviction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Admit refuses pods that the node has too little for: all but critical ones
// while a disk or the processes are short, and BestEffort ones that don't tolerate
// it while memory is. A resize is judged in the same way.
func (m *Manager) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if attrs.Pod == nil {
		return lifecycle.PodAdmitResult{Reason: lifecycle.UnexpectedAdmissionError, Message: "there is no pod to admit"}
	}
	conditions := m.published()
	if admits(attrs.Pod, conditions) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	message := fmt.Sprintf("The node had condition: %v. ", conditions)
	m.cfg.Observer.Refused(attrs.Pod, message)
	return lifecycle.PodAdmitResult{Reason: Reason, Message: message}
}

// admits says whether the pod may start while the conditions hold.
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

// toleratesMemoryPressure says whether t is about the taint that the node has
// while its memory is short, which has no value.
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

// published returns the node conditions that hold.
func (m *Manager) published() []corev1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Mode == DryRun {
		return nil
	}
	return m.conditions
}

// IsUnderMemoryPressure says whether the node has, or had a moment ago, too little
// memory. It never does in [DryRun].
func (m *Manager) IsUnderMemoryPressure() bool { return m.isUnder(corev1.NodeMemoryPressure) }

// IsUnderDiskPressure says the same of disks.
func (m *Manager) IsUnderDiskPressure() bool { return m.isUnder(corev1.NodeDiskPressure) }

// IsUnderPIDPressure says the same of processes.
func (m *Manager) IsUnderPIDPressure() bool { return m.isUnder(corev1.NodePIDPressure) }

func (m *Manager) isUnder(c corev1.NodeConditionType) bool {
	return slices.Contains(m.published(), c)
}
