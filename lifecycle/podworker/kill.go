package podworker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podcache"
)

// KillPod terminates the pod and returns nil when nothing of it runs any more.
// It returns nil at once if the pod has already ended. It also returns nil at
// once if the pod is unknown, nothing of it runs, and [Workers.SyncKnownPods]
// was called before. If ctx is done first, the error contains the cause of ctx
// and the error of the last sync; the Workers still terminate the pod. The
// error is [ErrStopped] if Run has returned.
//
// The pod need not be known. KillPod retains pod; the caller must not modify it
// afterwards.
func (w *Workers) KillPod(ctx context.Context, pod *corev1.Pod, how KillOptions) error {
	if pod == nil || pod.UID == "" {
		return errors.New("podworker: KillPod needs a pod with a UID")
	}
	if w.isOrphan(pod.UID) && !w.runs(pod.UID) {
		return nil
	}
	// Buffered, so that the goroutine that notifies the caller never blocks.
	done := make(chan error, 1)
	w.update(Update{Type: Kill, Pod: pod, Kill: how}, done)
	select {
	case err := <-done:
		return wrapKill(pod, err)
	case <-ctx.Done():
	}
	return wrapKill(pod, w.stopWaiting(pod.UID, done, context.Cause(ctx)))
}

func wrapKill(pod *corev1.Pod, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kill pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// stopWaiting removes the channel of a KillPod whose ctx is done. If the pod
// has ended meanwhile, it returns the result of the kill instead of cause.
func (w *Workers) stopWaiting(uid types.UID, done chan error, cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-done:
		return err
	default:
	}
	p := w.pods[uid] // never nil: waiters are notified before a pod is forgotten
	p.waiters = slices.DeleteFunc(p.waiters, func(c chan<- error) bool { return c == done })
	if p.lastErr == nil || errors.Is(p.lastErr, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w; the last attempt failed: %w", cause, p.lastErr)
}

// KillOrphans kills pods that run in the runtime but are not known to the
// Workers, such as pods that were removed while the agent was down. Call it
// after [Workers.SyncKnownPods] and after the creation of the desired pods that
// were unknown. Before the first call of SyncKnownPods, KillOrphans does
// nothing, because the Workers do not know yet which pods are desired. It
// returns the UIDs of the pods that it kills. It does not kill a pod that has
// ended and is still known: the list may be older than the end of the pod, and
// may show the pod as running. KillOrphans retains the statuses.
func (w *Workers) KillOrphans(found []*podcache.Status) (killed []types.UID) {
	for _, s := range found {
		if s == nil || s.UID == "" || !s.Running() || !w.isOrphan(s.UID) {
			continue
		}
		killed = append(killed, s.UID)
		w.UpdatePod(Update{Type: Kill, Running: s})
	}
	return killed
}

// isOrphan reports whether the pod is unknown and SyncKnownPods was called.
func (w *Workers) isOrphan(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s == nil && w.synced })
}
