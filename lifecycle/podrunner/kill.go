package podrunner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/internal/crilabels"
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

// SyncTerminatingPod stops every container of the pod, each within the turn's
// grace, then its sandboxes, and looks whether that is so.
func (r *Runner) SyncTerminatingPod(ctx context.Context, t podworker.Turn) error {
	if err := r.stopPod(ctx, t.Pod, t.Status, t.Grace, ""); err != nil {
		r.event(t.Pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
		return err
	}
	r.setWaiting(t.Pod.UID, nil)
	return r.checkStopped(ctx, t)
}

// SyncTerminatingRuntimePod stops a pod of which only the runtime knows. Its
// containers get the grace period that was written on them when they were made:
// the kubelet gives them one second, because it does not look.
func (r *Runner) SyncTerminatingRuntimePod(ctx context.Context, t podworker.Turn) error {
	grace := t.Grace
	for _, c := range t.Status.Containers {
		if s, err := strconv.ParseInt(c.GetAnnotations()[crilabels.PodTerminationGracePeriod], 10, 32); err == nil {
			grace = max(grace, time.Duration(s)*time.Second)
		}
	}
	if err := r.stopPod(ctx, nil, t.Status, grace, ""); err != nil {
		return err
	}
	return r.checkStopped(ctx, t)
}

// SyncTerminatedPod checks that nothing of the pod runs and forgets it. What it
// leaves behind in the runtime is for [Runner.RemovePod].
func (r *Runner) SyncTerminatedPod(_ context.Context, t podworker.Turn) error {
	if t.Status.Running() {
		return fmt.Errorf("pod %s: %w", t.Status.UID, ErrStillRunning)
	}
	r.Forget(t.Status.UID)
	for c := range podspec.Containers(&t.Pod.Spec) {
		r.cfg.RestartBackoff.Reset(RestartKey(t.Pod, c)) // a static pod may come again with its UID
	}
	return nil
}

// checkStopped looks at the runtime instead of believing it.
func (r *Runner) checkStopped(ctx context.Context, t podworker.Turn) error {
	status, err := r.cfg.Refresh(ctx, t.Status.UID)
	if err == nil && (status == nil || status.Stale) {
		err = errStale
	}
	if err != nil {
		return fmt.Errorf("look at pod %s after killing it: %w", t.Status.UID, err)
	}
	if status.Running() {
		return fmt.Errorf("pod %s: %w", t.Status.UID, ErrStillRunning)
	}
	return nil
}

// stopPod stops all containers and then all sandboxes: sidecars after the rest,
// the last one first, all within the grace. pod is nil when only the runtime
// knows it.
func (r *Runner) stopPod(ctx context.Context, pod *corev1.Pod, status *podcache.Status, grace time.Duration, reason Reason) error {
	start := r.cfg.Clock.Now()
	for _, wave := range stopOrder(pod, status) {
		left := grace - r.cfg.Clock.Since(start).Truncate(time.Second)
		err := inParallel(wave, func(c *runtimeapi.ContainerStatus) error {
			name := podcache.ContainerName(c)
			if pod != nil {
				message := "Stopping container " + name
				if reason != "" {
					message = string(reason)
				}
				r.event(pod, corev1.EventTypeNormal, "Killing", "%s", message)
			}
			return r.stopContainer(ctx, name, c.GetId(), left)
		})
		if err != nil {
			return err
		}
	}
	// A sandbox that is not ready is stopped too: its network may still be there.
	return inParallel(status.Sandboxes, func(s *runtimeapi.PodSandboxStatus) error {
		if err := r.cfg.Sandboxes.StopPodSandbox(ctx, s.GetId()); err != nil && !criapierrors.IsNotFound(err) {
			return fmt.Errorf("stop sandbox %s: %w", s.GetId(), err)
		}
		return nil
	})
}

// stopOrder returns what has not ended in the order in which it is stopped, what
// goes at the same time together.
func stopOrder(pod *corev1.Pod, status *podcache.Status) [][]*runtimeapi.ContainerStatus {
	var first []*runtimeapi.ContainerStatus
	sidecars := map[string][]*runtimeapi.ContainerStatus{}
	for _, c := range status.Containers {
		switch name := podcache.ContainerName(c); {
		case exited(c):
		case pod != nil && slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == name && podspec.IsSidecar(&i) }):
			sidecars[name] = append(sidecars[name], c)
		default:
			first = append(first, c)
		}
	}
	waves := [][]*runtimeapi.ContainerStatus{first}
	if pod != nil {
		for _, c := range slices.Backward(pod.Spec.InitContainers) {
			waves = append(waves, sidecars[c.Name])
		}
	}
	return waves
}

// stopContainer stops a container; one that is gone is stopped. Like the kubelet
// it leaves no container less than two seconds to end by itself.
func (r *Runner) stopContainer(ctx context.Context, name, id string, grace time.Duration) error {
	const shortest = 2 * time.Second
	err := r.cfg.Containers.StopContainer(ctx, id, int64(max(grace, shortest)/time.Second))
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

// RemovePod removes everything of a stopped pod from the runtime, its log folder,
// and what is kept about it in memory. It refuses a pod of which something runs,
// or may run because the status is stale: runtimes kill what they are told to
// remove. What is gone already is no error.
func (r *Runner) RemovePod(ctx context.Context, status *podcache.Status) error {
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
	if err := r.remove(ctx, removes); err != nil {
		return err
	}
	r.Forget(status.UID)
	return removeLogs(r.cfg.LogRoot, status.Namespace, status.Name, status.UID)
}

// specGrace is the grace period that the pod's spec gives, the API's default of
// 30 s where it gives none. More than CRI runtimes can count to is cut.
func specGrace(pod *corev1.Pod) time.Duration {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return seconds(*g)
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

func seconds(n int64) time.Duration { return time.Duration(min(n, math.MaxInt32)) * time.Second }

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
