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

// syncer carries out the syncs of workers. The runner changes the runtime, and the syncer
// computes the pod's status before and after that.
type syncer struct{ *Loop }

// SyncPod brings a pod closer to its spec. The result terminal reports whether the phase of the pod
// is Succeeded or Failed. If it is, the worker stops the containers that still run.
func (s syncer) SyncPod(ctx context.Context, req podworker.SyncRequest) (terminal bool, err error) {
	s.probes.sync(req) // before the status, which contains probe results
	if podspec.IsTerminal(s.setStatus(ctx, req, running).Phase) {
		return true, nil
	}
	if err := s.awaitSameName(ctx, req); err != nil {
		return false, err
	}
	_, err = s.runner.SyncPod(ctx, req)
	if len(s.runner.Waiting(req.Pod.UID)) > 0 {
		s.setStatus(ctx, req, running) // report the waiting containers and their reasons
	}
	return false, errors.Join(err, s.whenDue(req.Pod))
}

// SyncTerminatingPod stops a pod.
func (s syncer) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	s.probes.StopLivenessAndStartup(req.Pod.UID)
	s.setStatus(ctx, req, running)
	if err := s.runner.SyncTerminatingPod(ctx, req); err != nil {
		return err
	}
	s.probes.remove(req.Pod.UID)
	req.Status, _ = s.cache.Get(req.Pod.UID) // the runner has refreshed the cache
	s.setStatus(ctx, req, stopped)
	return nil
}

// SyncTerminatingRuntimePod stops a pod that no source defines.
func (s syncer) SyncTerminatingRuntimePod(ctx context.Context, req podworker.SyncRequest) error {
	return s.runner.SyncTerminatingRuntimePod(ctx, req)
}

// SyncTerminatedPod completes the status of a pod that has stopped.
func (s syncer) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	if err := s.runner.SyncTerminatedPod(ctx, req); err != nil {
		return err
	}
	s.setStatus(ctx, req, stopped)
	s.statuses.TerminatePod(req.Pod)
	return nil
}

// stage describes whether the pod may still run when its status is computed.
type stage bool

const (
	running stage = false
	stopped stage = true
)

// setStatus computes and stores the pod's status. It returns the stored status.
func (s syncer) setStatus(ctx context.Context, req podworker.SyncRequest, at stage) corev1.PodStatus {
	next := s.generate(ctx, req.Pod, req.Status, at)
	if req.StatusFn != nil {
		req.StatusFn(&next)
	}
	stored, _ := s.statuses.SetPodStatus(req.Pod, next)
	return stored
}

// generate computes a pod's status from the current facts.
func (l *Loop) generate(ctx context.Context, pod *corev1.Pod, observed *podcache.Status, at stage) corev1.PodStatus {
	previous, _ := l.statuses.GetPodStatus(pod.UID)
	s := status.Generate(status.Input{
		Pod:                pod,
		Runtime:            observed,
		RuntimeName:        l.cfg.Node.RuntimeName(),
		Previous:           previous,
		Terminal:           at == stopped,
		Waiting:            l.runner.Waiting(pod.UID),
		Restarting:         l.runner.Restarting(ctx, observed),
		Enforced:           l.runner.Enforced(ctx, pod.UID),
		Devices:            l.runner.Health(pod.UID),
		TerminationMessage: podrunner.TerminationMessage,
		NodeIPs:            l.cfg.Node.Facts().IPs,
		Probes:             l.probes.forStatus(pod.UID),
		Now:                l.cfg.Clock.Now(),
	})
	if over := l.deadline.ShouldEvict(pod); over.Evict && !podspec.IsTerminal(s.Phase) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, over.Reason, over.Message
	}
	return s
}

// whenDue returns a RetryError for the time of the pod's active deadline. It returns nil if the
// pod has no deadline or the deadline is over.
func (l *Loop) whenDue(pod *corev1.Pod) error {
	due, ok := l.deadline.Due(pod)
	if !ok || !due.After(l.cfg.Clock.Now()) {
		return nil
	}
	return &podworker.RetryError{At: due}
}

// awaitSameName returns an error while another pod of the same name runs. If this pod already has a
// sandbox, awaitSameName returns nil. Workers never run two static pods of the same name at the
// same time. But the workers may not know a pod of an earlier agent that no source defines any
// more. Therefore awaitSameName lists the ready sandboxes in the runtime.
func (s syncer) awaitSameName(ctx context.Context, req podworker.SyncRequest) error {
	if len(req.Status.Sandboxes) > 0 || !s.sameNameRanBefore(req.Pod) {
		return nil
	}
	labels := s.ownLabels()
	labels[crilabels.PodName], labels[crilabels.PodNamespace] = req.Pod.Name, req.Pod.Namespace
	ready, err := s.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: labels,
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return fmt.Errorf("list sandboxes of pods of the same name: %w", err)
	}
	for _, sandbox := range ready {
		if uid := crilabels.UID(sandbox.GetLabels()); uid != req.Pod.UID {
			return &podworker.TransientError{Err: fmt.Errorf("another pod of the same name (UID %s) is still running", uid)}
		}
	}
	return nil
}

// sameNameRanBefore reports whether a pod of this name may have run when the agent started.
func (l *Loop) sameNameRanBefore(pod *corev1.Pod) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ranBefore == nil || l.ranBefore[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
}

// ownLabels returns the labels that all sandboxes and containers of this agent have. With
// TakeOver, it returns no labels.
func (l *Loop) ownLabels() map[string]string {
	if l.cfg.TakeOver {
		return map[string]string{}
	}
	return map[string]string{crilabels.Agent: l.cfg.Name}
}
