package podloop

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// syncer is what a worker does in a turn: the runner acts on the runtime, and before and after
// that the status of the pod is computed from what is known.
type syncer struct{ *Loop }

// SyncPod brings a pod closer to its spec. It is terminal when the containers of the pod have
// ended and none runs again.
func (s syncer) SyncPod(ctx context.Context, t podworker.Turn) (terminal bool, err error) {
	s.probes.turn(t) // before the status, which has the results of probes
	if podspec.IsTerminal(s.setStatus(ctx, t, running).Phase) {
		return true, nil
	}
	if err := s.awaitNamesake(ctx, t); err != nil {
		return false, err
	}
	_, err = s.runner.SyncPod(ctx, t)
	if len(s.runner.Waiting(t.Pod.UID)) > 0 {
		s.setStatus(ctx, t, running) // what waits now, and why
	}
	return false, errors.Join(err, s.whenDue(t.Pod))
}

// SyncTerminatingPod stops a pod.
func (s syncer) SyncTerminatingPod(ctx context.Context, t podworker.Turn) error {
	s.probes.StopLivenessAndStartup(t.Pod.UID)
	s.setStatus(ctx, t, running)
	if err := s.runner.SyncTerminatingPod(ctx, t); err != nil {
		return err
	}
	s.probes.end(t.Pod.UID)
	t.Status, _ = s.cache.Get(t.Pod.UID) // the runner has refreshed it
	s.setStatus(ctx, t, stopped)
	return nil
}

// SyncTerminatingRuntimePod stops a pod that no source defines.
func (s syncer) SyncTerminatingRuntimePod(ctx context.Context, t podworker.Turn) error {
	return s.runner.SyncTerminatingRuntimePod(ctx, t)
}

// SyncTerminatedPod completes the status of a pod that has stopped.
func (s syncer) SyncTerminatedPod(ctx context.Context, t podworker.Turn) error {
	if err := s.runner.SyncTerminatedPod(ctx, t); err != nil {
		return err
	}
	s.setStatus(ctx, t, stopped)
	s.statuses.TerminatePod(t.Pod)
	return nil
}

// stage is whether a pod may still run when its status is computed.
type stage bool

const (
	running stage = false
	stopped stage = true
)

// setStatus computes the pod's status, and returns what is reported then.
func (s syncer) setStatus(ctx context.Context, t podworker.Turn, at stage) corev1.PodStatus {
	next := s.generate(ctx, t.Pod, t.Status, at)
	if t.StatusFn != nil {
		t.StatusFn(&next)
	}
	stored, _ := s.statuses.SetPodStatus(t.Pod, next)
	return stored
}

// generate computes a pod's status from what is known now.
func (l *Loop) generate(ctx context.Context, pod *corev1.Pod, observed *podcache.Status, at stage) corev1.PodStatus {
	previous, _ := l.statuses.GetPodStatus(pod.UID)
	s := status.Generate(status.Input{
		Pod:         pod,
		Runtime:     observed,
		RuntimeName: l.cfg.Node.RuntimeName(),
		Previous:    previous,
		Terminal:    at == stopped,
		Waiting:     l.runner.Waiting(pod.UID),
		Enforced:    l.runner.Enforced(ctx, pod.UID),
		Devices:     l.runner.Health(pod.UID),
		LastWords:   podrunner.LastWords,
		NodeIPs:     l.cfg.Node.Facts().IPs,
		Probes:      l.probes.forStatus(pod.UID),
		Now:         l.cfg.Clock.Now(),
	})
	if over := l.deadline.ShouldEvict(pod); over.Evict && !podspec.IsTerminal(s.Phase) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, over.Reason, over.Message
	}
	return s
}

// whenDue returns the time of the pod's active deadline, as a wish of its worker.
func (l *Loop) whenDue(pod *corev1.Pod) error {
	due, ok := l.deadline.Due(pod)
	if !ok || !due.After(l.cfg.Clock.Now()) {
		return nil
	}
	return &podworker.RetryError{At: due}
}

// awaitNamesake returns an error while another pod of the same name runs, if this one has not
// begun. Workers start no two static pods of one name, but they don't know a pod that an earlier
// agent started and no source defines any more.
func (s syncer) awaitNamesake(ctx context.Context, t podworker.Turn) error {
	if len(t.Status.Sandboxes) > 0 || !s.namesakeRanBefore(t.Pod) {
		return nil
	}
	labels := s.ownLabels()
	labels[crilabels.PodName], labels[crilabels.PodNamespace] = t.Pod.Name, t.Pod.Namespace
	ready, err := s.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: labels,
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return fmt.Errorf("list sandboxes of pods of the same name: %w", err)
	}
	for _, box := range ready {
		if uid := crilabels.UID(box.GetLabels()); uid != t.Pod.UID {
			return &podworker.TransientError{Err: fmt.Errorf("pod %s of the same name still runs", uid)}
		}
	}
	return nil
}

// namesakeRanBefore reports whether a pod of this name may have run when the agent began.
func (l *Loop) namesakeRanBefore(pod *corev1.Pod) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ranBefore == nil || l.ranBefore[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
}

// ownLabels are on everything in the runtime that is this agent's.
func (l *Loop) ownLabels() map[string]string {
	if l.cfg.TakeOver {
		return map[string]string{}
	}
	return map[string]string{crilabels.Agent: l.cfg.Name}
}
