package podworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
)

// The kubelet's texts about a node that shuts down.
const (
	// ReasonTerminated and MessageTerminated are in the status of a pod that
	// [Shutdown] ended.
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	// ReasonNodeShutdown and MessageNodeShutdown refuse a pod that comes too late.
	ReasonNodeShutdown  = "NodeShutdown"
	MessageNodeShutdown = "Pod was rejected as the node is shutting down."
	// EventShutdown is the reason of the node's events, MessageShutdown the message of
	// the event when a shutdown begins, and MessageShutdownCancelled of the event when
	// the machine has called it off.
	EventShutdown            = "Shutdown"
	MessageShutdown          = "Shutdown manager detected shutdown event"
	MessageShutdownCancelled = "Shutdown manager detected shutdown cancellation"
)

// Killer ends pods and returns when nothing of them runs. [Workers] are one.
type Killer interface {
	KillPod(ctx context.Context, pod *corev1.Pod, how KillOptions) error
}

// EventRecorder records events about objects. client-go's recorder is one.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// ShutdownOptions is what [Shutdown] needs beside a [Killer]. The zero value is
// fine.
type ShutdownOptions struct {
	// AwaitVolumes returns when the volumes of the pods are unmounted, or ctx is
	// done: the stage is not over before. The pods are those of the stage that have
	// ended; it is not called when the stage's time is over. Optional.
	AwaitVolumes func(ctx context.Context, pods []*corev1.Pod) error
	// Flush writes out what is still on its way, such as the statuses of the pods
	// that have just ended, and returns when that has arrived, or ctx is done. It
	// is called after every stage. The kubelet waits for no status. Optional.
	Flush func(ctx context.Context) error
	// FlushTimeout is how long one Flush may take, on top of the stage's period.
	// Default 2 s.
	FlushTimeout time.Duration
	// Events records that the shutdown begins, about Node, a Node or a reference to
	// one; [HoldShutdown] also that it was called off. Both are optional.
	Events EventRecorder
	Node   runtime.Object
	// StageEnd is called after each stage with how long it took, without Flush, and
	// its error. Optional.
	StageEnd func(s Stage, took time.Duration, err error)
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
}

func (o ShutdownOptions) withDefaults() ShutdownOptions {
	if o.AwaitVolumes == nil {
		o.AwaitVolumes = func(context.Context, []*corev1.Pod) error { return nil }
	}
	if o.Flush == nil {
		o.Flush = func(context.Context) error { return nil }
	}
	if o.FlushTimeout <= 0 {
		o.FlushTimeout = 2 * time.Second
	}
	if o.StageEnd == nil {
		o.StageEnd = func(Stage, time.Duration, error) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Shutdown ends the pods, one stage after the other: see [PlanShutdown]. The pods of
// a stage end together, each within its grace, and a stage is over when they and
// their volumes are gone, or its period is. What is left then still ends, but
// nobody waits for it. Every stage gets its turn, whatever became of those before;
// the error joins what went wrong. When ctx is done, it returns early.
//
// New pods are the caller's to refuse: see [ReasonNodeShutdown].
func Shutdown(ctx context.Context, k Killer, stages []Stage, o ShutdownOptions) error {
	if k == nil {
		return errors.New("podworker: shutdown needs a Killer")
	}
	o = o.withDefaults()
	o.event(MessageShutdown)
	var errs []error
	for _, s := range stages {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		began := o.Clock.Now()
		err := o.end(ctx, k, s)
		o.StageEnd(s, o.Clock.Since(began), err)
		errs = append(errs, err, o.flush(ctx))
	}
	return errors.Join(errs...)
}

func (o ShutdownOptions) event(message string) {
	if o.Events != nil && o.Node != nil {
		o.Events.Eventf(o.Node, corev1.EventTypeNormal, EventShutdown, message)
	}
}

// end ends the pods of a stage and waits for that, but not longer than it may take.
func (o ShutdownOptions) end(ctx context.Context, k Killer, s Stage) error {
	ctx, stop := within(ctx, o.Clock, s.Period)
	defer stop()
	errs := make([]error, len(s.Pods), len(s.Pods)+1)
	var kills sync.WaitGroup
	for i, p := range s.Pods {
		if p.Pod == nil {
			continue
		}
		how := KillOptions{Grace: &p.Grace, StatusFn: shutdownStatus(p.Pod.Generation, metav1.NewTime(o.Clock.Now()))}
		kills.Go(func() { errs[i] = k.KillPod(ctx, p.Pod, how) })
	}
	kills.Wait()
	var ended []*corev1.Pod
	for i, p := range s.Pods {
		if p.Pod != nil && errs[i] == nil {
			ended = append(ended, p.Pod)
		}
	}
	if ctx.Err() == nil {
		errs = append(errs, o.AwaitVolumes(ctx, ended))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("shutdown of pods from priority %d on: %w", s.Priority, err)
	}
	return nil
}

func (o ShutdownOptions) flush(ctx context.Context) error {
	ctx, stop := within(ctx, o.Clock, o.FlushTimeout)
	defer stop()
	if err := o.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// shutdownStatus returns what a pod's last status says of why it ended.
func shutdownStatus(generation int64, now metav1.Time) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		if s.Phase != corev1.PodSucceeded {
			s.Phase = corev1.PodFailed
		}
		s.Reason, s.Message = ReasonTerminated, MessageTerminated
		c := corev1.PodCondition{
			Type:               corev1.DisruptionTarget,
			ObservedGeneration: generation,
			Status:             corev1.ConditionTrue,
			LastTransitionTime: now,
			Reason:             corev1.PodReasonTerminationByKubelet,
			Message:            MessageTerminated,
		}
		conditions := make([]corev1.PodCondition, 0, len(s.Conditions)+1) // those given may be shared
		for _, old := range s.Conditions {
			if old.Type != c.Type {
				conditions = append(conditions, old)
			} else if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		s.Conditions = append(conditions, c)
	}
}

// within returns a ctx that is done after d on the given clock too. Its cause is
// context.DeadlineExceeded then. Stop releases it.
func within(ctx context.Context, c clock.Clock, d time.Duration) (limited context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := c.NewTimer(d)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-timer.C():
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		timer.Stop()
		watch.Wait()
	}
}
