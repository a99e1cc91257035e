package podrunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/backoff"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// Event reasons for failed preparations of a pod, the same as the kubelet's.
const (
	failedMount     = "FailedMount"
	failedPodCgroup = "FailedCreatePodContainer"
	failedSandbox   = "FailedCreatePodSandBox"
	sandboxUnknown  = "FailedPodSandBoxStatus"
	networkNotReady = "NetworkNotReady"
)

const (
	// firstMountWait is the delay before a failed mount is tried again for the first time, as in the
	// kubelet (exponentialbackoff of its volume manager).
	firstMountWait = 500 * time.Millisecond
	// lastMountWait is the longest delay before a failed mount is tried again.
	lastMountWait = 10 * time.Second
)

// prepareNode prepares on the node what the pod's containers need: user IDs,
// the pod's cgroup and its volumes. Later calls of the same sync return the
// result of the first call. Until prepareNode has succeeded, nothing is created
// in the runtime. If the plan replaces running containers, prepareNode does not
// prepare the cgroup, because the limits of the pod must not shrink before the
// old containers have stopped.
func (t *podSync) prepareNode(ctx context.Context, a Actions) error {
	if t.sandbox == nil && t.unprepared == nil {
		t.unprepared = t.prepareOnce(ctx, a)
	}
	return t.unprepared
}

func (t *podSync) prepareOnce(ctx context.Context, a Actions) error {
	if err := t.node.NetworkErr; err != nil && a.CreateSandbox != "" && !t.pod.Spec.HostNetwork {
		err = fmt.Errorf("network is not ready: %w", err)
		return t.prepareFailed(a, networkNotReady, err.Error(), &podworker.TransientError{Err: err})
	}
	if t.cfg.UserIDs != nil && wantsUserNamespace(t.pod) {
		if _, err := t.cfg.UserIDs.Acquire(t.pod.UID); err != nil {
			return t.prepareFailed(a, failedSandbox, fmt.Sprintf("Failed to create pod sandbox: %v", err), err)
		}
	}
	if a.CreateSandbox != "" {
		if err := CheckSandbox(t.pod, t.node); err != nil {
			return t.prepareFailed(a, failedSandbox, fmt.Sprintf("Failed to create pod sandbox: %v", err), err)
		}
	}
	if !t.replaces {
		if err := t.ensureCgroup(ctx, a); err != nil {
			return err
		}
	}
	if t.cfg.Volumes != nil {
		var err error
		if t.volumes, t.readOnly, err = t.cfg.Volumes.Mount(ctx, t.pod); err != nil {
			return t.retryMount(ctx, t.mountFailed(ctx, a, err))
		}
		t.forgetMountWait(t.pod.UID)
	}
	t.sandbox = t.plannedSandbox(a)
	return nil
}

// ensureCgroup creates the pod's cgroup if it is missing, and sets its limits.
func (t *podSync) ensureCgroup(ctx context.Context, a Actions) error {
	if t.cfg.PodCgroups == nil {
		return nil
	}
	parent, err := t.cfg.PodCgroups.Ensure(ctx, t.pod, t.node.Limits.quotaPeriod())
	if err != nil {
		return t.prepareFailed(a, failedPodCgroup, fmt.Sprintf("unable to ensure pod container exists: %v", err), err)
	}
	t.setEnforcedPod(ctx, t.pod, t.node)
	t.node.CgroupParent = func(*corev1.Pod) string { return parent }
	return nil
}

// retryMount returns err as a RetryError with the time at which the failed mount is tried again.
// The delay doubles with each failure in a row. A failure of a cancelled sync does not count.
func (t *podSync) retryMount(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := backoff.Next(t.mountWaits[t.pod.UID], firstMountWait, lastMountWait)
	t.mountWaits[t.pod.UID] = wait
	return &podworker.RetryError{At: t.cfg.Clock.Now().Add(wait), Err: err}
}

func (r *Runner) forgetMountWait(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mountWaits, uid)
}

// prepareFailed records why no container of the pod can start. The reason
// appears in an event and in the pod's status.
func (t *podSync) prepareFailed(a Actions, reason, message string, err error) error {
	t.event(t.pod, corev1.EventTypeWarning, reason, "%s", message)
	waiting := "ContainerCreating" // the kubelet's reasons for a container that was never started
	if len(t.pod.Spec.InitContainers) > 0 {
		waiting = "PodInitializing"
	}
	for _, s := range a.Start {
		_ = t.recordFailure(s.Name, &startError{reason: waiting, message: message}) // the returned error covers all containers
	}
	return fmt.Errorf("prepare pod %s: %w", podName(t.pod), err)
}

// mountFailed records an event for each volume that failed, as the kubelet
// does.
func (t *podSync) mountFailed(ctx context.Context, a Actions, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("mount volumes of pod %s: %w", podName(t.pod), err)
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all[1:] {
		t.event(t.pod, corev1.EventTypeWarning, failedMount, "%v", err)
	}
	return t.prepareFailed(a, failedMount, all[0].Error(), err)
}

// refreshVolumes updates the contents of the pod's volumes.
func (t *podSync) refreshVolumes(ctx context.Context) error {
	if t.cfg.Volumes == nil || len(t.pod.Spec.Volumes) == 0 || len(t.status.Sandboxes) == 0 {
		return nil
	}
	err := t.cfg.Volumes.Refresh(ctx, t.pod)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return t.mountFailed(ctx, Actions{}, err)
}

// prepare does everything that must be done before a container is created, and
// returns the container's configuration.
func (t *podSync) prepare(ctx context.Context, c *corev1.Container, attempt uint32) (*runtimeapi.ContainerConfig, error) {
	image, err := t.image(ctx, c)
	if err != nil {
		if e, ok := errors.AsType[*images.Error](err); ok {
			t.event(podspec.ContainerReference(t.pod, c.Name), corev1.EventTypeWarning, "Failed", "Error: %s", e.Reason)
		}
		return nil, err
	}
	in := Instance{Attempt: attempt, Image: image.Image, PodIPs: t.sandbox.ips, Volumes: t.volumes, ReadOnlyVolumes: t.readOnly}
	if in.ImageVolumes, err = t.imageVolumes(ctx, c); err != nil {
		return nil, err
	}
	if err := t.makeLogs(c.Name); err != nil {
		return nil, &startError{reason: CreateContainerError, err: err}
	}
	if in.TargetID, err = t.targetID(c.Name); err != nil {
		return nil, t.startFailure(c.Name, CreateContainerConfigError, err)
	}
	if in.Injection, err = t.inject(ctx, c); err != nil {
		return nil, t.startFailure(c.Name, CreateContainerConfigError, err)
	}
	if err := t.files(&in, c); err != nil {
		return nil, t.startFailure(c.Name, CreateContainerConfigError, err)
	}
	config, err := ContainerConfig(ctx, t.pod, c, in, t.node)
	if err != nil {
		return nil, t.startFailure(c.Name, CreateContainerConfigError, err)
	}
	return config, nil
}

// files creates the container's files in the pod's directory and stores their
// paths in the instance.
func (t *podSync) files(in *Instance, c *corev1.Container) (err error) {
	if t.cfg.RootDir == "" {
		return nil
	}
	parts, err := SubPathsOf(t.podRoot(), t.pod.UID)
	if err != nil {
		return err
	}
	in.SubPath = parts.Prepare
	if in.EtcHosts, err = t.writeHosts(t.pod, t.sandbox.ips, t.node); err != nil {
		return err
	}
	if c.TerminationMessagePath == "" {
		return nil
	}
	if in.TerminationLog, err = MakeTerminationLog(t.podRoot(), t.pod.UID, c.Name, in.Attempt); err != nil {
		return err
	}
	if in.Attempt == 0 {
		return nil // there is no earlier instance
	}
	return dropTerminationLogs(t.podRoot(), t.pod.UID, c.Name, t.keptTerminationLogs(c.Name, in.Attempt))
}

// keptTerminationLogs returns the names of the termination message files that a
// status may still show: the files of existing instances, and the file of the
// instance that is being created.
func (t *podSync) keptTerminationLogs(container string, attempt uint32) map[string]bool {
	names := map[string]bool{terminationLogFile(attempt): true}
	for _, s := range t.status.Containers {
		if podcache.ContainerName(s) == container {
			names[terminationLogFile(s.GetMetadata().GetAttempt())] = true
		}
	}
	return names
}

// kill stops the containers concurrently. If all containers are restarted, they
// have no hooks and no grace period. Otherwise each container has its hook and
// its own grace period.
func (t *podSync) kill(ctx context.Context, kills []Kill) error {
	return inParallel(kills, func(k Kill) error {
		t.event(podspec.ContainerReference(t.pod, k.Name), corev1.EventTypeNormal, lifecycle.Killing, "%s", k.Reason)
		now := t.cfg.Clock.Now()
		deadline := lifecycle.NewDeadline(t.cfg.Clock, now)
		if k.Cause != CauseRestartAll {
			deadline = lifecycle.NewDeadline(t.cfg.Clock, now.Add(lifecycle.KillGrace(t.pod, failedProbe(t.pod, k))))
		}
		e := t.newStopGroup(t.pod, deadline, statusIPs(t.status))
		s := t.statusOf(k.ID)
		e.add(k.Name, target{id: k.ID, running: s != nil && running(s)})
		return e.stopAll(ctx)
	})
}

// failedProbe returns the probe whose failure is the cause of k, or nil.
func failedProbe(pod *corev1.Pod, k Kill) *corev1.Probe {
	c := podspec.Container(&pod.Spec, k.Name)
	switch {
	case c == nil:
		return nil
	case k.Cause == CauseLiveness:
		return c.LivenessProbe
	case k.Cause == CauseStartup:
		return c.StartupProbe
	default:
		return nil
	}
}

func (t *podSync) statusOf(id string) *runtimeapi.ContainerStatus {
	for _, s := range t.status.Containers {
		if s.GetId() == id {
			return s
		}
	}
	return nil
}
