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

// ErrStillRunning says that something of a pod runs although the runtime said
// that it was stopped.
var ErrStillRunning = errors.New("detected running containers after a successful KillPod, CRI violation")

// errStale says that what the runtime shows of a pod is not known well enough to
// act on it: the container that is missing there may run already.
var errStale = errors.New("its status is stale")

// SyncTerminatingPod ends every container of the pod by the turn's deadline,
// preStop hooks and the order of sidecars included, then its sandboxes, and looks
// whether that is so. When the deadline moves earlier meanwhile, hooks and stops
// under way end earlier with it. With a State it is stored, and an
// agent that is started anew goes on with it.
func (r *Runner) SyncTerminatingPod(ctx context.Context, t podworker.Turn) error {
	if err := r.endPod(ctx, t, t.Grace); err != nil {
		r.event(t.Pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
		return err
	}
	r.setWaiting(t.Pod.UID, nil)
	return r.checkStopped(ctx, t)
}

// SyncTerminatingRuntimePod ends a pod of which only the runtime knows. Its
// containers get the grace period that was written on them when they were made,
// and their preStop hooks: the kubelet gives them one second, because it does not
// look. If their end had begun before a restart of the agent, it goes on.
func (r *Runner) SyncTerminatingRuntimePod(ctx context.Context, t podworker.Turn) error {
	if err := r.endPod(ctx, t, writtenGrace(t)); err != nil {
		return err
	}
	return r.checkStopped(ctx, t)
}

// endPod stops what a terminating turn has to stop. A pod without a spec has a
// deadline of its own, because its worker knows less of its grace.
func (r *Runner) endPod(ctx context.Context, t podworker.Turn, grace time.Duration) error {
	var given *lifecycle.Deadline
	if t.Pod != nil {
		given = t.Deadline()
	}
	deadline := r.endBy(ctx, t.Status.UID, given, grace)
	defer r.keepEnd(ctx, t.Status, deadline)()
	return r.stopPod(ctx, t.Pod, t.Status, deadline, "")
}

// writtenGrace is the grace period of a pod without a spec.
func writtenGrace(t podworker.Turn) time.Duration {
	grace := t.Grace
	for _, c := range t.Status.Containers {
		for _, key := range []string{crilabels.PodDeletionGracePeriod, crilabels.PodTerminationGracePeriod} {
			if s, err := strconv.ParseInt(c.GetAnnotations()[key], 10, 32); err == nil {
				grace = max(grace, lifecycle.Seconds(s))
				break
			}
		}
	}
	return grace
}

// SyncTerminatedPod checks that nothing of the pod runs, takes away what was
// prepared for it on the node, volumes and secrets above all, and forgets it. Its
// dead containers, their logs and their last words are for [Runner.RemovePod].
func (r *Runner) SyncTerminatedPod(ctx context.Context, t podworker.Turn) error {
	if t.Status.Running() {
		return fmt.Errorf("pod %s: %w", t.Status.UID, ErrStillRunning)
	}
	unlock, err := r.clean.Lock(ctx, t.Status.UID)
	if err != nil {
		return fmt.Errorf("wait for another cleaner of pod %s: %w", t.Status.UID, err)
	}
	defer unlock()
	if err := r.giveBack(ctx, t.Status.UID); err != nil {
		return err
	}
	r.Forget(t.Status.UID)
	for c := range podspec.Containers(&t.Pod.Spec) {
		r.cfg.RestartBackoff.Reset(RestartKey(t.Pod, c)) // a static pod may come again with its UID
	}
	return nil
}

// checkStopped looks at the runtime instead of believing it.
func (r *Runner) checkStopped(ctx context.Context, t podworker.Turn) error {
	now := r.cfg.Clock.Now()
	status, err := r.look(ctx, t.Status.UID)
	if err != nil {
		return fmt.Errorf("look at pod %s after killing it: %w", t.Status.UID, err)
	}
	if status.Running() {
		return fmt.Errorf("pod %s: %w", t.Status.UID, ErrStillRunning)
	}
	t.Refreshed(now)
	return nil
}

func (r *Runner) look(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	status, err := r.cfg.Refresh(ctx, uid)
	if err == nil && (status == nil || status.Stale) {
		err = errStale
	}
	return status, err
}

// stopPod ends all containers and then all sandboxes. pod is nil when only the
// runtime knows it.
func (r *Runner) stopPod(ctx context.Context, pod *corev1.Pod, status *podcache.Status, deadline *lifecycle.Deadline, reason Reason) error {
	known := pod
	if pod == nil {
		known = remembered(status)
	}
	e := r.ending(known, deadline, statusIPs(status))
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
	if err := e.end(ctx); err != nil {
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

// statusIPs are the addresses of the newest sandbox.
func statusIPs(status *podcache.Status) []string {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return sandboxIPs(status.Sandboxes[0])
}

// stopContainer stops a container; one that is gone is stopped.
func (r *Runner) stopContainer(ctx context.Context, name, id string, grace time.Duration) error {
	err := r.cfg.Containers.StopContainer(ctx, id, lifecycle.StopSeconds(grace))
	if err != nil && !criapierrors.IsNotFound(err) {
		return fmt.Errorf("stop container %s (%s): %w", name, id, err)
	}
	return nil
}

// remove removes what a plan names; all of it is tried.
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

// RemovePod removes everything of a stopped pod: from the runtime, its volumes and
// other files, its cgroup, its log folder, and what is kept about it in memory. A
// status with nothing but a UID is enough for what [Runner.Leftovers] found: then
// the runtime is looked at, because an agent that has just started knows of nothing
// what runs. It refuses a pod of which something runs, or may run because the status
// is stale: runtimes kill what they are told to remove. What is gone already is no
// error.
//
// Volumes and cgroup go when the runtime, asked anew, shows that nothing of the pod runs,
// also where it refuses to remove a dead container; then the rest stays, and that is the
// error.
func (r *Runner) RemovePod(ctx context.Context, status *podcache.Status) error {
	if len(status.Sandboxes)+len(status.Containers) == 0 && !status.Stale {
		seen, err := r.look(ctx, status.UID)
		if err != nil {
			return fmt.Errorf("look at pod %s before removing it: %w", status.UID, err)
		}
		if len(seen.Sandboxes)+len(seen.Containers) > 0 {
			status = seen
		}
	}
	switch {
	case status.Stale:
		return fmt.Errorf("remove pod %s: %w", status.UID, errStale)
	case status.Running():
		return fmt.Errorf("remove pod %s: it runs", status.UID)
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
		seen, err := r.look(ctx, status.UID)
		if err != nil {
			return errors.Join(refused, fmt.Errorf("look at pod %s before removing its files: %w", status.UID, err))
		}
		if seen.Running() {
			return errors.Join(refused, fmt.Errorf("remove files of pod %s: %w", status.UID, ErrStillRunning))
		}
	}
	unlock, err := r.clean.Lock(ctx, status.UID)
	if err != nil {
		return errors.Join(refused, fmt.Errorf("wait for another cleaner of pod %s: %w", status.UID, err))
	}
	defer unlock()
	if err := errors.Join(refused, r.giveBack(ctx, status.UID)); err != nil {
		return err
	}
	if err := removeLogs(r.cfg.LogRoot, status.UID); err != nil {
		return err
	}
	// The pod's own folder is the last to go: by it Leftovers finds what an agent that
	// is killed here has not removed.
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

// podID names the pod as the kubelet's messages do.
func podID(pod *corev1.Pod) string { return fmt.Sprintf("%s(%s)", podspec.FullName(pod), pod.UID) }
