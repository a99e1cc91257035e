package podloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// newAdmission creates the admission queue with its handlers, in the order in which they are
// called.
func (l *Loop) newAdmission() error {
	fits, err := lifecycle.NewNodeHandler(lifecycle.NodeConfig{
		Node:      l.cfg.Node.Get,
		FreshNode: l.cfg.Node.Fresh,
		OS:        "linux",
		Allocated: func(pod *corev1.Pod) bool { _, ok := l.savedStatus(pod.UID); return ok },
		Preempt:   l.preempt,
		Events:    l.cfg.Events,
		Observer:  l.cfg.Observers.Preemption,
	})
	if err != nil {
		return err
	}
	l.admissionQueue, err = newAdmissionQueue(admissionQueueConfig{
		handlers: append([]lifecycle.NamedHandler{
			{Name: "supported", Handler: lifecycle.AdmitFunc(l.admitSupported)},
			{Name: "runnable", Handler: lifecycle.AdmitFunc(l.admitRunnable)},
			{Name: "node", Handler: fits},
			{Name: "pressure", Handler: lifecycle.AdmitFunc(l.admitUnderPressure)},
		}, l.cfg.Admission...),
		allocators: l.cfg.Allocators,
		view:       l.admissionView,
		runs:       l.mayRun,
		answered: func(uid types.UID, version uint64, result lifecycle.PodAdmitResult) {
			l.post(func() { l.apply(event{kind: evAnswered, uid: uid, version: version, result: result}) })
		},
		idle:     func() { l.post(func() {}) },
		observer: l.cfg.Observers.Admission,
		clock:    l.cfg.Clock,
	})
	return err
}

// admitSupported refuses a pod with fields that this agent does not support, because the pod
// would not run as its spec requires.
func (l *Loop) admitSupported(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if err := l.runner.Unsupported(attrs.Pod); err != nil {
		return lifecycle.PodAdmitResult{Reason: "UnsupportedFields", Message: err.Error()}
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// admitRunnable refuses pods that the runtime or the kernel of this node can't run.
func (l *Loop) admitRunnable(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	node := podrunner.Node{Policy: l.cfg.Pods, Facts: l.cfg.Node.Facts()}
	if r, ok := errors.AsType[*podrunner.AdmissionError](podrunner.Admit(attrs.Pod, node)); ok {
		return lifecycle.PodAdmitResult{Reason: r.Reason, Message: r.Message}
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// admitUnderPressure refuses new pods while the node is under pressure. A pod that already runs
// is admitted.
func (l *Loop) admitUnderPressure(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if l.mayRun(attrs.Pod.UID) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return l.cfg.Node.Admit.Admit(ctx, attrs)
}

// preempt evicts a pod to make room for a critical pod.
func (l *Loop) preempt(ctx context.Context, victim *corev1.Pod) error {
	l.admissionQueue.freed = true // only the admission queue's goroutine calls preempt
	return l.Evict(ctx, victim, podworker.KillOptions{Grace: new(time.Duration(0)), StatusFn: l.preempted(victim)})
}

// preempted returns the function that changes the victim's status for a preemption.
func (l *Loop) preempted(victim *corev1.Pod) func(*corev1.PodStatus) {
	now := metav1.NewTime(l.cfg.Clock.Now())
	return func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, lifecycle.Preempting, lifecycle.PreemptingMessage
		conditions := slices.DeleteFunc(slices.Clone(s.Conditions), func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		s.Conditions = append(conditions, corev1.PodCondition{
			Type:               corev1.DisruptionTarget,
			ObservedGeneration: victim.Generation,
			Status:             corev1.ConditionTrue,
			LastTransitionTime: now,
			Reason:             corev1.PodReasonTerminationByKubelet,
			Message:            lifecycle.PreemptingMessage,
		})
	}
}

// admissionView returns a copy of the pod for admission and eviction, with its newest status.
// With OrdinaryStaticPods, the copy of a static pod has no source annotation, because a pod with
// this annotation would count as critical.
func (l *Loop) admissionView(pod *corev1.Pod) *corev1.Pod {
	p := *l.allocated(pod)
	if l.cfg.OrdinaryStaticPods && podspec.IsStatic(&p) {
		p.Annotations = maps.Clone(p.Annotations)
		delete(p.Annotations, podspec.SourceAnnotation)
	}
	if s, ok := l.statuses.GetPodStatus(p.UID); ok {
		p.Status = s
	}
	return &p
}

// runAdmission restores the allocators and then handles admission requests until ctx is done. It
// waits until the first relist is complete, because an allocator that does not know all running
// containers could assign the same resource twice.
func (l *Loop) runAdmission(ctx context.Context) error {
	select {
	case <-l.listed:
	case <-ctx.Done():
		return nil
	}
	if err := l.restore(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	// Wait until the node is known, because the first requests need it. Ignore an error: the
	// handler "node" gets the node again and reports the error.
	_, _ = l.cfg.Node.Get(ctx)
	l.admissionQueue.run(ctx)
	return nil
}

// restore passes the running pods of the runtime to the allocators.
func (l *Loop) restore(ctx context.Context) error {
	var found []*podcache.Status
	for _, s := range l.found() {
		if s.Running() {
			found = append(found, s)
		}
	}
	for _, a := range l.cfg.Allocators {
		var err error
		limited, cancel := context.WithTimeout(ctx, handlerDeadline)
		l.admissionQueue.trackCall(a.Name()+" (restore)", func() { err = a.Restore(limited, found) })
		cancel()
		if err != nil {
			return fmt.Errorf("restore allocator %s: %w", a.Name(), err)
		}
	}
	return nil
}
