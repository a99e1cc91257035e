package provider

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// SyncTerminatingPod stops the running containers of a pod within the pod's grace period.
func (s syncer) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	s.probes.StopLivenessAndStartup(req.Pod.UID)
	var running []lifecycle.ContainerState
	ids := map[string]string{}
	for _, c := range req.Status.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = append(running, lifecycle.ContainerState{Name: podcache.ContainerName(c), Running: true})
			ids[podcache.ContainerName(c)] = c.Id
		}
	}
	err := lifecycle.Terminate(ctx, lifecycle.Termination{
		Plan:     lifecycle.PlanTermination(req.Pod, running, req.Grace),
		Deadline: req.Deadline(),
		Stop: func(ctx context.Context, name string, grace time.Duration) error {
			return s.machine.Stop(ctx, ids[name], grace)
		},
	})
	s.updateStatus(req.Pod, nil, err == nil)
	return err
}

// SyncTerminatedPod publishes the final status, after which virtual-kubelet deletes the pod.
func (s syncer) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	s.probes.RemovePod(req.Pod.UID)
	s.statuses.TerminatePod(req.Pod)
	return s.collect(ctx, req.Pod.UID)
}

// SyncTerminatingRuntimePod does nothing: this provider has no pods that only the machine knows.
func (s syncer) SyncTerminatingRuntimePod(context.Context, podworker.SyncRequest) error { return nil }

// updateStatus computes and stores the pod's status. If the status has changed, the status manager
// notifies virtual-kubelet.
func (s syncer) updateStatus(pod *corev1.Pod, waiting map[string]corev1.ContainerStateWaiting, ended bool) corev1.PodStatus {
	observed, _ := s.view.Get(pod.UID)
	previous, _ := s.statuses.GetPodStatus(pod.UID)
	result, _ := s.statuses.SetPodStatus(pod, status.Generate(status.Input{
		Pod: pod, Runtime: observed, RuntimeName: "toy", Previous: previous, Waiting: waiting, Terminal: ended, Now: time.Now(),
		Probes: func(container, id string) (startup, readiness status.ProbeResult) {
			st, rd := s.probes.ProbeResults(pod.UID, container, id)
			return status.ProbeResult(st), status.ProbeResult(rd)
		},
	}))
	return result
}
