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

// ErrStillRunning means that a container or sandbox of a pod still runs,
// although the runtime has reported that it was stopped.
var ErrStillRunning = errors.New("detected running containers after a successful KillPod, CRI violation")

// errStale means that the Runner can't act on a pod, because the pod's status
// is stale: a container that is missing in the status may be running.
var errStale = errors.New("the pod's status is stale")

// SyncTerminatingPod runs the preStop hooks of the pod's containers and stops
// all containers by the deadline of the sync, with sidecars last. It then stops
// the pod's sandboxes, and verifies that everything has stopped. If the
// deadline becomes earlier meanwhile, the new deadline also applies to hooks
// and stops in progress. If [Config].State is set, the deadline is stored, and
// a restarted agent continues with the same deadline.
func (r *Runner) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	if err := r.terminatePod(ctx, req, req.Grace); err != nil {
		r.event(req.Pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
		return err
	}
	r.setWaiting(req.Pod.UID, nil)
	return r.verifyStopped(ctx, req)
}

// SyncTerminatingRuntimePod stops a pod that only the runtime knows. The
// containers get the grace period that is stored in their annotations, and
// their preStop hooks run. The kubelet runs no hooks, and gives these
// containers two seconds. If an earlier agent has started to terminate the pod,
// the deadline that it stored remains in effect.
func (r *Runner) SyncTerminatingRuntimePod(ctx context.Context, req podworker.SyncRequest) error {
	if err := r.terminatePod(ctx, req, writtenGrace(req)); err != nil {
		return err
	}
	return r.verifyStopped(ctx, req)
}

// terminatePod stops the pod of a terminating sync. If the pod has no spec, the
// pod's worker does not know the grace period, so terminatePod computes the
// deadline from grace.
func (r *Runner) terminatePod(ctx context.Context, req podworker.SyncRequest, grace time.Duration) error {
	r.setReleased(req.Status.UID, false)
	var given *lifecycle.Deadline
	if req.Pod != nil {
		given = req.Deadline()
	}
	deadline := r.terminationDeadline(ctx, req.Status.UID, given, grace)
	defer r.storeDeadline(ctx, req.Status, deadline)()
	return r.stopPod(ctx, req.Pod, req.Status, deadline, "")
}

// writtenGrace returns the grace period of a pod without a spec: the longest
// grace period in the annotations of its containers, but at least the grace
// period of req.
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

// SyncTerminatedPod verifies that nothing of the pod runs. It then releases
// what was prepared for the pod on the node, such as volumes and secrets, and
// deletes the pod's state from memory. The pod's dead containers, and their
// logs and termination messages, remain until [Runner.RemovePod] removes them.
// The runtime may complete a cancelled call after the pod has stopped. If
// something of the pod runs again, SyncTerminatedPod stops it first.
func (r *Runner) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	if req.Status.Stale {
		return fmt.Errorf("pod %s: %w", req.Status.UID, errStale)
	}
	if req.Status.Running() {
		if err := r.SyncTerminatingPod(ctx, req); err != nil {
			return err
		}
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
	r.setReleased(req.Status.UID, true)
	for c := range podspec.Containers(&req.Pod.Spec) {
		r.cfg.RestartBackoff.Reset(RestartKey(req.Pod, c)) // a static pod may be created again with the same UID
	}
	return nil
}

// verifyStopped reads the pod's current state from the runtime, and returns an
// error if the pod still runs.
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
// runtime knows the pod.
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
	// A sandbox that is not ready is stopped too, because its network may still
	// exist.
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

// remove removes the containers and sandboxes of a plan. If a removal fails,
// remove continues with the next removal.
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
// its volumes and other files, its cgroup, its log directory, and its state in
// memory. For a pod from [Runner.Leftovers], pass a status with only the UID.
// RemovePod then reads the state from the runtime, because a starting agent
// does not know what runs. RemovePod returns an error if the pod runs, because
// a runtime kills a running container before it removes the container. It also
// returns an error if the status is stale, because the pod may then run.
// RemovePod ignores parts that do not exist.
//
// RemovePod removes volumes and the cgroup only when the runtime's current
// state shows that nothing of the pod runs. It does so even if the runtime
// refuses to remove a dead container. In that case the log directory and the
// other files remain, and RemovePod returns the error.
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
	if !r.isReleased(status.UID) {
		refused = errors.Join(refused, r.release(ctx, status.UID))
	}
	if refused != nil {
		return refused
	}
	if err := removeLogs(r.cfg.LogRoot, status.UID); err != nil {
		return err
	}
	// The pod's directory is removed last. If the agent is killed before,
	// Leftovers still finds the pod by this directory. State does not delete a
	// directory with the name of a record, so removeFiles removes it.
	if err := r.removeFiles(status.UID, containersFolder, hostsFile, terminationRecordName, enforcedRecordName, replacedRecordName); err != nil {
		return err
	}
	r.Forget(status.UID)
	return nil
}

// inParallel processes all items concurrently with the given function, waits
// for all calls and joins their errors.
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
