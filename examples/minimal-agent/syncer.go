package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// syncer is what a worker does in a turn: the runner acts on the runtime, and
// before and after it the pod's status says what is known.
type syncer struct{ *agent }

var _ podworker.Syncer = syncer{}

// SyncPod moves a pod that is to run towards its spec. It is terminal when its
// containers have ended and none comes again.
func (s syncer) SyncPod(ctx context.Context, t podworker.Turn) (terminal bool, err error) {
	s.probes.turn(t) // before the status, which asks for what was probed
	if podspec.IsTerminal(s.say(ctx, t, false).Phase) {
		return true, nil
	}
	if err := s.awaitNamesake(ctx, t); err != nil {
		return false, err
	}
	_, err = s.runner.SyncPod(ctx, t)
	if len(s.runner.Waiting(t.Pod.UID)) > 0 {
		s.say(ctx, t, false) // what waits now, and why; what started shows in the next turn
	}
	return false, errors.Join(err, s.whenDue(t.Pod))
}

// SyncTerminatingPod stops a pod.
func (s syncer) SyncTerminatingPod(ctx context.Context, t podworker.Turn) error {
	s.probes.StopLivenessAndStartup(t.Pod.UID)
	s.say(ctx, t, false)
	if err := s.runner.SyncTerminatingPod(ctx, t); err != nil {
		return err
	}
	s.probes.end(t.Pod.UID)
	t.Status, _ = s.cache.Get(t.Pod.UID) // the runner has just had it refreshed
	s.say(ctx, t, true)
	return nil
}

// SyncTerminatingRuntimePod stops a pod that no manifest asks for.
func (s syncer) SyncTerminatingRuntimePod(ctx context.Context, t podworker.Turn) error {
	err := s.runner.SyncTerminatingRuntimePod(ctx, t)
	s.sweep.Trigger()
	return err
}

// SyncTerminatedPod seals the status of a pod that has stopped.
func (s syncer) SyncTerminatedPod(ctx context.Context, t podworker.Turn) error {
	if err := s.runner.SyncTerminatedPod(ctx, t); err != nil {
		return err
	}
	s.say(ctx, t, true)
	s.statuses.TerminatePod(t.Pod)
	s.sweep.Trigger()
	return nil
}

// say computes the pod's status and keeps it; it returns what was kept.
func (s syncer) say(ctx context.Context, t podworker.Turn, terminal bool) corev1.PodStatus {
	next := s.generate(ctx, t.Pod, t.Status, terminal)
	if t.StatusFn != nil {
		t.StatusFn(&next) // who ends the pod says why
	}
	return s.setStatus(t.Pod, next)
}

// awaitNamesake is an error as long as another pod of the same name runs, if this
// one has not begun. Workers let no two of a name run at once, but they don't know
// a pod whose manifest changed while no agent was there; nor does the cache, until
// it was inspected. Only pods that ran when the agent began can be such.
func (s syncer) awaitNamesake(ctx context.Context, t podworker.Turn) error {
	if len(t.Status.Sandboxes) > 0 || !s.startup.foundNamesake(t.Pod) {
		return nil
	}
	labels := s.ownLabels()
	labels[crilabels.PodName], labels[crilabels.PodNamespace] = t.Pod.Name, t.Pod.Namespace
	ready, err := s.node.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: labels,
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return fmt.Errorf("look for another pod of the same name: %w", err)
	}
	for _, box := range ready {
		if uid := crilabels.UID(box.GetLabels()); uid != t.Pod.UID {
			return &podworker.TransientError{Err: fmt.Errorf("pod %s of the same name still runs", uid)}
		}
	}
	return nil
}
