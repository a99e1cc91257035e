package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// AdmitBackoff slows down what comes back as soon as it is refused: a refused pod
// has failed, and whoever owns it makes another at once, which the scheduler sends
// to the same node until it has heard of the pressure.
type AdmitBackoff struct {
	// Base is how long the refusal of the second pod of an owner is held back,
	// and twice as long for each pod after it. A pod that is held back is admitted
	// if the pressure ends meanwhile. Admission waits: leave it off where pods are
	// admitted one after the other. Default 0, which holds back nothing.
	Base time.Duration
	// Max is the longest wait, and half the time after which an owner is
	// forgotten. Default 16 times Base.
	Max time.Duration
}

// Admit refuses pods that the node has too little for: all but critical ones
// while a disk or the processes are short, and BestEffort ones that don't tolerate
// it while memory is. A resize is judged in the same way.
func (m *Manager) Admit(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if attrs.Pod == nil {
		return lifecycle.PodAdmitResult{Reason: lifecycle.UnexpectedAdmissionError, Message: "there is no pod to admit"}
	}
	conditions, changed := m.published()
	if len(conditions) > 0 && m.cfg.AdmitBackoff.Base > 0 && !admits(attrs.Pod, conditions) {
		timer := m.cfg.Clock.NewTimer(m.refusals.delay(m.cfg.Clock.Now(), attrs.Pod))
		defer timer.Stop()
		for waits := true; waits && !admits(attrs.Pod, conditions); {
			select {
			case <-changed:
				conditions, changed = m.published()
			case <-timer.C():
				waits = false
			case <-ctx.Done():
				waits = false
			}
		}
	}
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

// refusals counts pods that were refused, by owner.
type refusals struct {
	cfg AdmitBackoff

	mu  sync.Mutex
	all map[types.UID]refusal
}

type refusal struct {
	next time.Duration
	last time.Time
}

// delay returns how long the refusal of the pod is held back, and counts it.
func (r *refusals) delay(now time.Time, pod *corev1.Pod) time.Duration {
	owner := pod.UID
	if c := metav1.GetControllerOfNoCopy(pod); c != nil {
		owner = c.UID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, old := range r.all {
		if now.Sub(old.last) >= 2*r.cfg.Max {
			delete(r.all, uid)
		}
	}
	delay := r.all[owner].next
	r.all[owner] = refusal{next: min(max(r.cfg.Base, 2*delay), r.cfg.Max), last: now}
	return delay
}

// published returns the node conditions that hold, and a channel that is closed
// when they change.
func (m *Manager) published() ([]corev1.NodeConditionType, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Mode == DryRun {
		return nil, m.changed
	}
	return m.conditions, m.changed
}

// IsUnderMemoryPressure says whether the node has, or had a moment ago, too little
// memory. It never does in [DryRun].
func (m *Manager) IsUnderMemoryPressure() bool { return m.isUnder(corev1.NodeMemoryPressure) }

// IsUnderDiskPressure says the same of disks.
func (m *Manager) IsUnderDiskPressure() bool { return m.isUnder(corev1.NodeDiskPressure) }

// IsUnderPIDPressure says the same of processes.
func (m *Manager) IsUnderPIDPressure() bool { return m.isUnder(corev1.NodePIDPressure) }

func (m *Manager) isUnder(c corev1.NodeConditionType) bool {
	conditions, _ := m.published()
	return slices.Contains(conditions, c)
}
