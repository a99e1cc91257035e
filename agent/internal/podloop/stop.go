package podloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// stopMargin is what the runtime may take to stop all pods, in addition to the longest of their
// grace periods.
const stopMargin = time.Minute

// Kill ends one pod for good and returns when nothing of it runs, which it does at once if
// nothing does. When ctx is done first, the pod still ends.
func (l *Loop) Kill(ctx context.Context, uid types.UID, how podworker.KillOptions) error {
	remove := keep
	if how.Evict {
		remove = evicted
	}
	return l.kill(ctx, event{kind: evKilled, uid: uid, how: how, remove: remove})
}

// Evict ends a pod for good, returns when nothing of it runs, and has what is left of it removed.
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
		return !known || now.endedBy != r.endedBy || !now.state.MayRun() && (now.state != Refused || !now.working)
	})
	if err != nil {
		return fmt.Errorf("kill pod %s/%s: %w", r.pod.Namespace, r.pod.Name, err)
	}
	return nil
}

// await returns when the condition holds, which is checked after each change of a record.
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

// ErrStopping is returned by a second [Loop.StopPods] while the first one works, or has ended all
// pods.
var ErrStopping = errors.New("the pods are being stopped already")

// StopPods ends all pods in the order of their priority, and returns when none runs and their
// statuses are published. With the zero how each pod has its own grace period, and nothing of any
// pod is left on the node. No pod is admitted until Run ends; an API pod that comes is refused.
// If ctx is cancelled first, the loop goes on: static pods that have ended begin again.
func (l *Loop) StopPods(ctx context.Context, how podworker.ShutdownConfig) error {
	if err := how.Validate(); err != nil {
		return fmt.Errorf("invalid shutdown config: %w", err)
	}
	if !l.stopping.CompareAndSwap(false, true) {
		return ErrStopping
	}
	l.lane.drain()
	l.remover.hurryUp()
	err := l.stopPods(ctx, how)
	if err != nil && ctx.Err() != nil {
		l.goOn()
	}
	return err
}

// goOn has the loop go on after StopPods was cancelled. When it returns, StopPods may be called
// again.
func (l *Loop) goOn() {
	done := make(chan struct{})
	l.post(func() {
		l.applyAll(event{kind: evResumed})
		l.lane.resume()
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
	stages, remove := podworker.PlanShutdown(pods, how.GracePeriods(), how.Total()), keep
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
	return l.empty(ctx)
}

// running returns the pods that hold something of the node and have a definition.
func (l *Loop) running() (pods []*corev1.Pod) {
	l.each(func(r record) {
		if r.state.MayRun() && len(r.pod.Spec.Containers) > 0 {
			pods = append(pods, l.allocated(r.pod))
		}
	})
	return pods
}

// oneStage ends all pods at once, each within its own grace period.
func oneStage(pods []*corev1.Pod) []podworker.Stage {
	if len(pods) == 0 {
		return nil
	}
	stage := podworker.Stage{Period: stopMargin}
	for _, p := range pods {
		seconds := ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		grace := time.Duration(seconds) * time.Second
		stage.Pods = append(stage.Pods, podworker.StagePod{Pod: p, Grace: grace})
		stage.Period = max(stage.Period, grace+stopMargin)
	}
	return []podworker.Stage{stage}
}

// stopper ends pods for StopPods.
type stopper struct {
	*Loop
	remove removal
}

// KillPod is for [podworker.Killer].
func (s stopper) KillPod(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
	return s.kill(ctx, event{kind: evKilled, uid: pod.UID, how: how, stopped: true, remove: s.remove})
}

// empty returns when nothing of any pod is left on the node. Also what no source defines is
// removed, whether or not all have answered: no pod is wanted any more.
func (l *Loop) empty(ctx context.Context) error {
	select {
	case <-l.looked:
	case <-l.stopped:
		return podworker.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	found := make(chan struct{})
	l.post(func() {
		l.findOrphans()
		l.applyAll(event{kind: evKilled, stopped: true, remove: emptied})
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
			if r.state.MayRun() || r.state == Ended && r.leaving() || r.state == Refused && r.working {
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
