package podloop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// stopMargin is the time that the runtime may take to stop all pods, in addition to their
// longest grace period.
const stopMargin = time.Minute

// Kill stops a pod permanently, and returns when none of the pod's containers runs. If ctx is
// done first, Kill returns an error, but the loop continues to stop the pod.
func (l *Loop) Kill(ctx context.Context, uid types.UID, how podworker.KillOptions) error {
	remove := keepData
	if how.Evict {
		remove = evicted
	}
	return l.kill(ctx, event{kind: evKilled, uid: uid, how: how, removalReason: remove})
}

// Evict stops a pod permanently, and returns when none of the pod's containers runs. The remover
// then removes the pod's data in the background.
func (l *Loop) Evict(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
	how.Evict = true
	return l.Kill(ctx, pod.UID, how)
}

func (l *Loop) kill(ctx context.Context, e event) error {
	handled := make(chan record, 1)
	l.post(func() {
		l.apply(e)
		r, _ := l.record(e.uid)
		handled <- r
	})
	var r record
	select {
	case r = <-handled:
	case <-l.stopped:
		return fmt.Errorf("kill pod %s: %w", e.uid, podworker.ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("kill pod %s: %w", e.uid, context.Cause(ctx))
	}
	if r.state == Gone {
		return fmt.Errorf("kill pod %s: %w", e.uid, ErrUnknownPod)
	}
	err := l.await(ctx, func() bool {
		now, known := l.record(e.uid)
		return !known || now.endedBy != r.endedBy || !now.state.MayRun() && (now.state != Refused || !now.hasWorker)
	})
	if err != nil {
		return fmt.Errorf("kill pod %s/%s: %w", r.pod.Namespace, r.pod.Name, err)
	}
	return nil
}

// await returns when the condition is true. It checks the condition after each change of a
// record.
func (l *Loop) await(ctx context.Context, condition func() bool) error {
	for {
		l.mu.RLock()
		moved := l.moved
		l.mu.RUnlock()
		if condition() {
			return nil
		}
		select {
		case <-moved:
		case <-l.stopped:
			return podworker.ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ErrStopping is returned by a second call of [Loop.StopPods]. If the ctx of the first call was
// cancelled, StopPods may be called again.
var ErrStopping = errors.New("the pods are already being stopped")

// StopPods stops all pods. It returns when no pod runs and the statuses of the pods are published.
// If the ShutdownConfig is zero, StopPods stops all pods at the same time, each with its own grace
// period, and removes all data of the pods. If it is not zero, StopPods stops the pods in the order
// of their priority. From the start of the call, the loop admits no pod: it refuses new API pods,
// and defers new static pods and edits of pods. If ctx is cancelled before all pods are stopped,
// admission continues, and static pods that StopPods has ended start again.
func (l *Loop) StopPods(ctx context.Context, how podworker.ShutdownConfig) error {
	if err := how.Validate(); err != nil {
		return fmt.Errorf("invalid shutdown config: %w", err)
	}
	if !l.stopping.CompareAndSwap(false, true) {
		return ErrStopping
	}
	l.admissionQueue.drain()
	l.remover.retryAllNow()
	err := l.stopPods(ctx, how)
	if err != nil && ctx.Err() != nil {
		l.resumePods()
	}
	return err
}

// resumePods undoes the effects of a cancelled StopPods. After that, StopPods may be called
// again.
func (l *Loop) resumePods() {
	done := make(chan struct{})
	l.post(func() {
		l.applyAll(event{kind: evResumed})
		l.admissionQueue.resume()
		l.stopping.Store(false)
		close(done)
	})
	select {
	case <-done:
	case <-l.stopped:
	}
}

func (l *Loop) stopPods(ctx context.Context, how podworker.ShutdownConfig) error {
	pods := l.running()
	stages, remove := podworker.PlanShutdown(pods, how.GracePeriods(), how.Total()), keepData
	if how.Total() == 0 {
		stages, remove = oneStage(pods), emptied
	}
	err := podworker.Shutdown(ctx, stopper{l, remove}, stages, podworker.ShutdownOptions{
		Flush:  l.flush,
		Events: l.cfg.Events,
		Node:   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.cfg.NodeName}},
		Clock:  l.cfg.Clock,
	})
	if err != nil || how.Total() > 0 {
		return err
	}
	return l.removeAll(ctx)
}

// running returns the pods that may use resources of the node and have a definition.
func (l *Loop) running() (pods []*corev1.Pod) {
	l.each(func(r record) {
		if r.state.MayRun() && len(r.pod.Spec.Containers) > 0 {
			pods = append(pods, l.allocated(r.pod))
		}
	})
	return pods
}

// oneStage returns one stage that stops all pods at once, each with its own grace period.
func oneStage(pods []*corev1.Pod) []podworker.Stage {
	if len(pods) == 0 {
		return nil
	}
	stage := podworker.Stage{Period: stopMargin}
	for _, p := range pods {
		seconds := ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		grace := lifecycle.Seconds(seconds)
		stage.Pods = append(stage.Pods, podworker.StagePod{Pod: p, Grace: grace})
		stage.Period = max(stage.Period, min(grace, math.MaxInt64-stopMargin)+stopMargin)
	}
	return []podworker.Stage{stage}
}

// stopper stops pods for StopPods.
type stopper struct {
	*Loop
	remove removal
}

// KillPod implements [podworker.Killer]. It returns nil if the pod was removed after the stages were
// planned.
func (s stopper) KillPod(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
	err := s.kill(ctx, event{kind: evKilled, uid: pod.UID, how: how, stopped: true, removalReason: s.remove})
	if errors.Is(err, ErrUnknownPod) {
		return nil
	}
	return err
}

// removeAll removes all data of pods from the node, and returns when the data is removed. It
// also removes pods that no source defines. It does not wait until every source has defined its
// pods, because no pod is needed any more.
func (l *Loop) removeAll(ctx context.Context) error {
	select {
	case <-l.listed:
	case <-l.stopped:
		return podworker.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	found := make(chan struct{})
	l.post(func() {
		l.findOrphans()
		l.applyAll(event{kind: evKilled, stopped: true, removalReason: emptied})
		close(found)
	})
	select {
	case <-found:
	case <-l.stopped:
		return podworker.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	left := 0
	err := l.await(ctx, func() bool {
		left = 0
		l.each(func(r record) {
			if r.state.MayRun() || r.state == Ended && r.leaving() || r.state == Refused && r.hasWorker {
				left++
			}
		})
		return left == 0
	})
	if err != nil {
		return fmt.Errorf("%d pods are left on the node: %w", left, err)
	}
	return l.flush(ctx)
}
