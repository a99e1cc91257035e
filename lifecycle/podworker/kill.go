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

// KillPod ends the pod and returns when nothing of it runs any more: nil then,
// or at once if it has ended before, or if it is unknown, nothing of it runs and
// [Workers.SyncKnownPods] was called, so that nobody else is about to tell of it.
// When ctx is done first, the error says so and why the last attempt failed, if
// one did; the pod is still going to end. [ErrStopped] says that Run has
// returned.
//
// The pod need not be known. It is retained like that of [Workers.UpdatePod].
func (w *Workers) KillPod(ctx context.Context, pod *corev1.Pod, how KillOptions) error {
	if pod == nil || pod.UID == "" {
		return errors.New("podworker: kill needs a pod with a UID")
	}
	if w.isNobodys(pod.UID) && !w.runs(pod.UID) {
		return nil
	}
	// One place, so that whoever reports never waits for us.
	done := make(chan error, 1)
	w.update(Update{Type: Kill, Pod: pod, Kill: how}, done)
	select {
	case err := <-done:
		return wrapKill(pod, err)
	case <-ctx.Done():
	}
	return wrapKill(pod, w.giveUp(pod.UID, done, context.Cause(ctx)))
}

func wrapKill(pod *corev1.Pod, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kill pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// giveUp ends a wait for the end of a pod. The end may have come meanwhile.
func (w *Workers) giveUp(uid types.UID, done chan error, cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-done:
		return err
	default:
	}
	p := w.pods[uid] // it is there: whoever waits is told before a pod is forgotten
	p.waiters = slices.DeleteFunc(p.waiters, func(c chan<- error) bool { return c == done })
	if p.lastErr == nil || errors.Is(p.lastErr, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w; the last attempt failed: %w", cause, p.lastErr)
}

// KillOrphans ends what the runtime shows running and no worker answers for: a pod
// that was removed while the agent was down. Call it after [Workers.SyncKnownPods]
// and the creation of what that did not know; before the first sweep it does
// nothing, because nobody knows then what is desired. It returns whom it told to
// end. A pod that has ended and is still known is left alone: a list that is older
// than its end shows it running. The statuses are retained.
func (w *Workers) KillOrphans(found []*podcache.Status) (killed []types.UID) {
	for _, s := range found {
		if s == nil || s.UID == "" || !s.Running() || !w.isNobodys(s.UID) {
			continue
		}
		killed = append(killed, s.UID)
		w.UpdatePod(Update{Type: Kill, Running: s})
	}
	return killed
}

// isNobodys says whether no worker answers for the pod and none is about to.
func (w *Workers) isNobodys(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s == nil && w.synced })
}
