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

// SyncTerminatingPod stops what runs, within the pod's grace.
func (s syncer) SyncTerminatingPod(ctx context.Context, t podworker.Turn) error {
	s.probes.StopLivenessAndStartup(t.Pod.UID)
	var running []lifecycle.ContainerState
	ids := map[string]string{}
	for _, c := range t.Status.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = append(running, lifecycle.ContainerState{Name: podcache.ContainerName(c), Running: true})
			ids[podcache.ContainerName(c)] = c.Id
		}
	}
	err := lifecycle.Terminate(ctx, lifecycle.Termination{
		Plan:     lifecycle.PlanTermination(t.Pod, running, t.Grace),
		Deadline: t.Deadline(),
		Stop: func(ctx context.Context, name string, grace time.Duration) error {
			return s.machine.Stop(ctx, ids[name], grace)
		},
	})
	s.say(t.Pod, nil, err == nil)
	return err
}

// SyncTerminatedPod says the last word: virtual-kubelet waits for it to delete the pod.
func (s syncer) SyncTerminatedPod(ctx context.Context, t podworker.Turn) error {
	s.probes.RemovePod(t.Pod.UID)
	s.statuses.TerminatePod(t.Pod)
	return s.collect(ctx, t.Pod.UID)
}

// SyncTerminatingRuntimePod is for pods that only the machine knows. This one has none.
func (s syncer) SyncTerminatingRuntimePod(context.Context, podworker.Turn) error { return nil }

// say computes the pod's status and keeps it, which tells virtual-kubelet of changes.
func (s syncer) say(pod *corev1.Pod, waiting map[string]corev1.ContainerStateWaiting, ended bool) corev1.PodStatus {
	seen, _ := s.view.Get(pod.UID)
	previous, _ := s.statuses.GetPodStatus(pod.UID)
	said, _ := s.statuses.SetPodStatus(pod, status.Generate(status.Input{
		Pod: pod, Runtime: seen, RuntimeName: "toy", Previous: previous, Waiting: waiting, Terminal: ended, Now: time.Now(),
		Probes: func(container, id string) (startup, readiness status.ProbeResult) {
			st, rd := s.probes.Probed(pod.UID, container, id)
			return status.ProbeResult(st), status.ProbeResult(rd)
		},
	}))
	return said
}
