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
	// [Shutdown] terminated.
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	// ReasonNodeShutdown and MessageNodeShutdown are for pods that are rejected
	// because the node is shutting down.
	ReasonNodeShutdown  = "NodeShutdown"
	MessageNodeShutdown = "Pod was rejected as the node is shutting down."
	// EventShutdown is the reason of the events about the node. MessageShutdown
	// is the message of the event when a shutdown begins.
	// MessageShutdownCancelled is the message of the event when the machine has
	// cancelled the shutdown.
	EventShutdown            = "Shutdown"
	MessageShutdown          = "Shutdown manager detected shutdown event"
	MessageShutdownCancelled = "Shutdown manager detected shutdown cancellation"
)

// Killer kills pods and returns when nothing of them runs. [Workers] implement
// it.
type Killer interface {
	KillPod(ctx context.Context, pod *corev1.Pod, how KillOptions) error
}

// EventRecorder records events about objects. client-go's recorder implements
// it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// ShutdownOptions configures [Shutdown]. The zero value is valid.
type ShutdownOptions struct {
	// AwaitVolumes returns when the volumes of the given pods are unmounted, or
	// when ctx is done. The given pods are those pods of the stage that have
	// ended. The stage ends when AwaitVolumes has returned. AwaitVolumes is not
	// called if the stage's period is over. Optional.
	AwaitVolumes func(ctx context.Context, pods []*corev1.Pod) error
	// Flush writes out pending data, such as the statuses of the pods that have
	// just ended, and returns when the data is written, or when ctx is done.
	// Flush is called after every stage. The kubelet does not wait for
	// statuses. Optional.
	Flush func(ctx context.Context) error
	// FlushTimeout is the longest time that one call of Flush may take. The
	// stage's period does not include this time. Default 2 s.
	FlushTimeout time.Duration
	// Events receives an event about Node when the shutdown begins.
	// [HoldShutdown] also sends an event when the shutdown was cancelled. Node
	// is a Node object or a reference to a Node. Both fields are optional.
	Events EventRecorder
	Node   runtime.Object
	// StageEnd is called after each stage, before Flush, with the stage's
	// duration and error. Optional.
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

// Shutdown terminates the pods, one stage after the other: see [PlanShutdown].
// The pods of a stage are terminated concurrently, each within its grace
// period. A stage ends when its pods have ended and their volumes are
// unmounted, or when its period is over. If pods have not ended when the period
// is over, their termination continues, but Shutdown does not wait for them.
// Every stage is carried out, even if an earlier stage failed; the error joins
// all failures. If ctx is done, Shutdown returns early.
//
// The caller must reject new pods: see [ReasonNodeShutdown].
func Shutdown(ctx context.Context, k Killer, stages []Stage, o ShutdownOptions) error {
	if k == nil {
		return errors.New("podworker: Shutdown needs a Killer")
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

// end terminates the pods of a stage and waits for them, but no longer than the
// stage's period.
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
		return fmt.Errorf("shut down pods of priority %d and above: %w", s.Priority, err)
	}
	return nil
}

func (o ShutdownOptions) flush(ctx context.Context) error {
	ctx, stop := within(ctx, o.Clock, o.FlushTimeout)
	defer stop()
	if err := o.Flush(ctx); err != nil {
		return fmt.Errorf("flush statuses before the shutdown: %w", err)
	}
	return nil
}

// shutdownStatus returns a function that changes a pod's last status: the status
// then shows that the pod was terminated because of the shutdown.
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
		conditions := make([]corev1.PodCondition, 0, len(s.Conditions)+1) // a copy: the original may be shared
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

// within returns a ctx that is also done after d on the given clock; its cause
// is then context.DeadlineExceeded. The caller must call stop.
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
