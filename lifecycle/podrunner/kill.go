package podrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// ErrStillRunning means that containers of a pod run although the runtime
// reported that they were stopped.
var ErrStillRunning = errors.New("detected running containers after a successful KillPod, CRI violation")

// errStale means that the state of a pod in the runtime is not known well
// enough to act on it: a container that is missing in it may be running.
var errStale = errors.New("the pod's status is stale")

// SyncTerminatingPod stops every container of the pod by the deadline of the
// sync, with preStop hooks and sidecars last, then its sandboxes, and verifies
// that they have stopped. If the deadline moves earlier meanwhile, the new
// deadline applies to hooks and stops in progress. With a State the deadline is
// stored, and a restarted agent continues with it.
func (r *Runner) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	if err := r.terminatePod(ctx, req, req.Grace); err != nil {
		r.event(req.Pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
		return err
	}
	r.setWaiting(req.Pod.UID, nil)
	return r.verifyStopped(ctx, req)
}

// SyncTerminatingRuntimePod stops a pod that only the runtime knows. Its
// containers get the grace period that was stored on them at their creation,
// and their preStop hooks run; the kubelet gives them one second. A termination
// that began before a restart of the agent continues with its deadline.
func (r *Runner) SyncTerminatingRuntimePod(ctx context.Context, req podworker.SyncRequest) error {
	if err := r.terminatePod(ctx, req, writtenGrace(req)); err != nil {
		return err
	}
	return r.verifyStopped(ctx, req)
}

// terminatePod stops the pod of a terminating sync. A pod without a spec gets its own
// deadline, because its worker does not know its grace period.
func (r *Runner) terminatePod(ctx context.Context, req podworker.SyncRequest, grace time.Duration) error {
	var given *lifecycle.Deadline
	if req.Pod != nil {
		given = req.Deadline()
	}
	deadline := r.terminationDeadline(ctx, req.Status.UID, given, grace)
	defer r.storeDeadline(ctx, req.Status, deadline)()
	return r.stopPod(ctx, req.Pod, req.Status, deadline, "")
}

// writtenGrace returns the grace period of a pod without a spec, from its
// containers.
func writtenGrace(req podworker.SyncRequest) time.Duration {
	grace := req.Grace
	for _, c := range req.Status.Containers {
		for _, key := range []string{crilabels.PodDeletionGracePeriod, crilabels.PodTerminationGracePeriod} {
			if s, err := strconv.ParseInt(c.GetAnnotations()[key], 10, 32); err == nil {
				grace = max(grace, lifecycle.Seconds(s))
				break
			}
		}
	}
	return grace
}

// SyncTerminatedPod verifies that nothing of the pod runs, releases what was
// prepared for it on the node, such as volumes and secrets, and forgets the
// pod. Its dead containers, their logs and termination messages remain until
// [Runner.RemovePod].
func (r *Runner) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	if req.Status.Running() {
		return fmt.Errorf("pod %s: %w", req.Status.UID, ErrStillRunning)
	}
	unlock, err := r.clean.Lock(ctx, req.Status.UID)
	if err != nil {
		return fmt.Errorf("wait for another cleanup of pod %s: %w", req.Status.UID, err)
	}
	defer unlock()
	if err := r.release(ctx, req.Status.UID); err != nil {
		return err
	}
	r.Forget(req.Status.UID)
	for c := range podspec.Containers(&req.Pod.Spec) {
		r.cfg.RestartBackoff.Reset(RestartKey(req.Pod, c)) // a static pod may come again with its UID
	}
	return nil
}

// verifyStopped verifies in the runtime that the pod has stopped.
func (r *Runner) verifyStopped(ctx context.Context, req podworker.SyncRequest) error {
	now := r.cfg.Clock.Now()
	status, err := r.refresh(ctx, req.Status.UID)
	if err != nil {
		return fmt.Errorf("read the state of pod %s after killing it: %w", req.Status.UID, err)
	}
	if status.Running() {
		return fmt.Errorf("pod %s: %w", req.Status.UID, ErrStillRunning)
	}
	req.Refreshed(now)
	return nil
}

func (r *Runner) refresh(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	status, err := r.cfg.Refresh(ctx, uid)
	if err == nil && (status == nil || status.Stale) {
		err = errStale
	}
	return status, err
}

// stopPod stops all containers and then all sandboxes. pod is nil if only the
// runtime knows it.
func (r *Runner) stopPod(ctx context.Context, pod *corev1.Pod, status *podcache.Status, deadline *lifecycle.Deadline, reason Reason) error {
	known := pod
	if pod == nil {
		known = podFromAnnotations(status)
	}
	e := r.newStopGroup(known, deadline, statusIPs(status))
	for _, c := range status.Containers {
		if exited(c) {
			continue
		}
		name := podcache.ContainerName(c)
		e.add(name, target{id: c.GetId(), running: running(c)})
		if pod != nil {
			r.event(podspec.ContainerReference(pod, name), corev1.EventTypeNormal, lifecycle.Killing, "%s", cmp.Or(string(reason), lifecycle.StoppingMessage(name)))
		}
	}
	if err := e.stopAll(ctx); err != nil {
		return err
	}
	// A sandbox that is not ready is stopped too: its network may still be there.
	return inParallel(status.Sandboxes, func(s *runtimeapi.PodSandboxStatus) error {
		if err := r.cfg.Sandboxes.StopPodSandbox(ctx, s.GetId()); err != nil && !criapierrors.IsNotFound(err) {
			return fmt.Errorf("stop sandbox %s: %w", s.GetId(), err)
		}
		return nil
	})
}

// statusIPs returns the addresses of the newest sandbox.
func statusIPs(status *podcache.Status) []string {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return sandboxIPs(status.Sandboxes[0])
}

// stopContainer stops a container. It returns nil if the container does not
// exist.
func (r *Runner) stopContainer(ctx context.Context, name, id string, grace time.Duration) error {
	err := r.cfg.Containers.StopContainer(ctx, id, lifecycle.StopSeconds(grace))
	if err != nil && !criapierrors.IsNotFound(err) {
		return fmt.Errorf("stop container %s (%s): %w", name, id, err)
	}
	return nil
}

// remove removes the objects of a plan. It tries all of them.
func (r *Runner) remove(ctx context.Context, removes []Remove) error {
	var errs []error
	for _, rm := range removes {
		remove, kind := r.cfg.Containers.RemoveContainer, "container"
		if rm.Sandbox {
			remove, kind = r.cfg.Sandboxes.RemovePodSandbox, "sandbox"
		}
		if err := remove(ctx, rm.ID); err != nil && !criapierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove %s %s (%s): %w", kind, rm.Name, rm.ID, err))
		}
	}
	return errors.Join(errs...)
}

// RemovePod removes everything of a stopped pod: its containers and sandboxes,
// volumes and other files, cgroup, log directory, and its state in memory. For
// a pod from [Runner.Leftovers], a status with only a UID is enough: RemovePod
// then reads the state from the runtime, because an agent that has just started
// does not know what runs. It returns an error for a pod that runs, or that may
// run because the status is stale: a runtime kills a running container before
// it removes it. Parts that do not exist are not an error.
//
// Volumes and the cgroup are removed when the runtime's current state shows
// that nothing of the pod runs, even if the runtime refuses to remove a dead
// container. In that case the other parts remain, and RemovePod returns the
// error.
func (r *Runner) RemovePod(ctx context.Context, status *podcache.Status) error {
	if len(status.Sandboxes)+len(status.Containers) == 0 && !status.Stale {
		seen, err := r.refresh(ctx, status.UID)
		if err != nil {
			return fmt.Errorf("read the state of pod %s before removing it: %w", status.UID, err)
		}
		if len(seen.Sandboxes)+len(seen.Containers) > 0 {
			status = seen
		}
	}
	switch {
	case status.Stale:
		return fmt.Errorf("remove pod %s: %w", status.UID, errStale)
	case status.Running():
		return fmt.Errorf("remove pod %s: containers of the pod are still running", status.UID)
	}
	var removes []Remove
	for _, c := range status.Containers {
		removes = append(removes, Remove{ID: c.GetId(), Name: podcache.ContainerName(c)})
	}
	for _, s := range status.Sandboxes {
		removes = append(removes, Remove{ID: s.GetId(), Name: s.GetMetadata().GetName(), Sandbox: true})
	}
	refused := r.remove(ctx, removes)
	if len(removes) > 0 {
		seen, err := r.refresh(ctx, status.UID)
		if err != nil {
			return errors.Join(refused, fmt.Errorf("read the state of pod %s before removing its files: %w", status.UID, err))
		}
		if seen.Running() {
			return errors.Join(refused, fmt.Errorf("remove files of pod %s: %w", status.UID, ErrStillRunning))
		}
	}
	unlock, err := r.clean.Lock(ctx, status.UID)
	if err != nil {
		return errors.Join(refused, fmt.Errorf("wait for another cleanup of pod %s: %w", status.UID, err))
	}
	defer unlock()
	if err := errors.Join(refused, r.release(ctx, status.UID)); err != nil {
		return err
	}
	if err := removeLogs(r.cfg.LogRoot, status.UID); err != nil {
		return err
	}
	// The pod's own directory is removed last: through it, Leftovers finds what
	// is left if the agent is killed here.
	if err := r.removeFiles(status.UID, containersFolder, hostsFile); err != nil {
		return err
	}
	r.Forget(status.UID)
	return nil
}

// inParallel calls do for every item at once, waits for all and joins the errors.
func inParallel[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = do(item) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// podID returns the pod's name in the format of the kubelet's messages.
func podID(pod *corev1.Pod) string { return fmt.Sprintf("%s(%s)", podspec.FullName(pod), pod.UID) }
