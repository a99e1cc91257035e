package provider

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
)

// syncer implements the syncs of a pod worker.
type syncer struct{ *Provider }

// SyncPod starts and restarts the containers of a pod, and updates the pod's status. terminal
// reports whether all containers have ended and none will be restarted.
func (s syncer) SyncPod(ctx context.Context, req podworker.SyncRequest) (terminal bool, err error) {
	s.probes.AddPod(req.Pod)
	waiting := map[string]corev1.ContainerStateWaiting{}
	var errs []error
	for i := range req.Pod.Spec.Containers {
		errs = append(errs, s.syncContainer(ctx, req, &req.Pod.Spec.Containers[i], waiting))
	}
	s.probes.Refresh(req.Pod.UID)
	errs = append(errs, s.collect(ctx, req.Pod.UID))
	return podspec.IsTerminal(s.updateStatus(req.Pod, waiting, false).Phase), errors.Join(errs...)
}

// syncContainer starts a new container, stops a running container if a probe has failed, and
// restarts an exited container if the restart policy requires a restart. During a back-off, it
// records the container's waiting state in the last argument.
func (s syncer) syncContainer(ctx context.Context, req podworker.SyncRequest, c *corev1.Container, waiting map[string]corev1.ContainerStateWaiting) error {
	last, key := req.Status.Container(c.Name), string(req.Pod.UID)+"/"+c.Name
	switch {
	case last == nil:
		return s.machine.Start(ctx, req.Pod, c, 0)
	case last.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		if probe := s.failed(req.Pod.UID, c, last.Id); probe != nil {
			return s.machine.Stop(ctx, last.Id, lifecycle.KillGrace(req.Pod, probe))
		}
		return nil
	case !podspec.ShouldRestart(req.Pod, c, last.ExitCode):
		return nil
	}
	ended := time.Unix(0, last.FinishedAt)
	if until, delay, wait := s.backoff.Until(key, ended); wait {
		waiting[c.Name] = corev1.ContainerStateWaiting{
			Reason: lifecycle.CrashLoopBackOff, Message: lifecycle.CrashLoopMessage(delay, c.Name, req.Pod),
		}
		return &podworker.RetryError{At: until}
	}
	s.backoff.Next(key, ended)
	return s.machine.Start(ctx, req.Pod, c, podcache.RestartCount(last)+1)
}

// failed returns the startup or liveness probe that has failed, or nil.
func (s syncer) failed(uid types.UID, c *corev1.Container, id string) *corev1.Probe {
	for kind, probe := range map[prober.Kind]*corev1.Probe{prober.Startup: c.StartupProbe, prober.Liveness: c.LivenessProbe} {
		if s.probes.Result(prober.Key{PodUID: uid, Container: c.Name, Kind: kind}, id) == prober.Failure {
			return probe
		}
	}
	return nil
}

// collect removes exited containers, except the newest of each name while the pod exists.
func (s syncer) collect(ctx context.Context, uid types.UID) error {
	in := containergc.Input{Now: time.Now(), Pods: s.workers}
	observed, _ := s.view.Get(uid)
	for _, c := range observed.Containers {
		dead := containergc.ContainerFromStatus(c, "")
		dead.PodUID, dead.Name = uid, podcache.ContainerName(c)
		in.Snapshot.Containers = append(in.Snapshot.Containers, dead)
	}
	var errs []error
	for _, o := range containergc.PlanRemovals(in).Removals() {
		errs = append(errs, s.machine.Remove(ctx, o.ID))
	}
	return errors.Join(errs...)
}
