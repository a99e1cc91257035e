package podloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// each calls f with every record, in the order of UIDs.
func (l *Loop) each(f func(record)) {
	for _, uid := range l.uids() {
		if r, known := l.record(uid); known {
			f(r)
		}
	}
}

// Pods returns all pods that are defined by a source or have data left on the node, ordered by
// namespace and name.
func (l *Loop) Pods() []Pod {
	var pods []Pod
	l.each(func(r record) { pods = append(pods, l.view(r)) })
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.Namespace, b.Spec.Namespace), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	return pods
}

// Pod returns the pod with this UID. It returns false if [Loop.Pods] would not return the pod.
func (l *Loop) Pod(uid types.UID) (Pod, bool) {
	r, known := l.record(uid)
	if !known {
		return Pod{}, false
	}
	return l.view(r), true
}

func (l *Loop) view(r record) Pod {
	observed, _ := l.cache.Get(r.uid) // on an error, use the last known status
	return Pod{Spec: l.withStatus(l.allocated(r.pod)), Source: r.source, State: r.state, Runtime: observed}
}

// withStatus returns a copy of the pod with its newest status.
func (l *Loop) withStatus(pod *corev1.Pod) *corev1.Pod {
	p := *pod
	if s, ok := l.statuses.GetPodStatus(pod.UID); ok {
		p.Status = s
	}
	return &p
}

// Find returns the current definition of a pod. For an admitted pod, this is the definition that
// was admitted. Find ignores an edit that waits for admission or that was refused. Find returns
// false if the pod has no definition.
func (l *Loop) Find(uid types.UID) (*corev1.Pod, bool) {
	r, known := l.record(uid)
	if !known || len(r.pod.Spec.Containers) == 0 {
		return nil, false
	}
	return r.pod, true
}

// Active returns copies of the pods that may use resources of the node, for eviction. The copies
// have the newest status: see admissionView.
func (l *Loop) Active() []*corev1.Pod {
	pods := l.running()
	for i, p := range pods {
		pods[i] = l.admissionView(p)
	}
	return pods
}

// Desired returns the pods that a source defines, in the order of UIDs.
func (l *Loop) Desired() (pods []*corev1.Pod) {
	l.each(func(r record) {
		if r.source != "" {
			pods = append(pods, l.allocated(r.pod))
		}
	})
	return pods
}

// Known returns the pods that the workers know. The result must not be modified.
func (l *Loop) Known() map[types.UID]podworker.Known { return l.workers.KnownPods() }

// Observed returns the state of each pod in the runtime, in the order of UIDs.
func (l *Loop) Observed() []*podcache.Status { return l.cache.Statuses() }

// Await waits until the cached state of a pod is not older than the given time, and returns the
// state.
func (l *Loop) Await(ctx context.Context, uid types.UID, since time.Time) (*podcache.Status, error) {
	return l.cache.GetNewerThan(ctx, uid, since)
}

// RelistedAt returns the start time of the newest successful relist. It is zero if no relist has
// succeeded yet.
func (l *Loop) RelistedAt() time.Time { return l.pleg.Stats().RelistedAt }

// Healthy returns why the PLEG is not healthy, for example because it can't list the pods of the
// runtime. It returns nil if the PLEG is healthy.
func (l *Loop) Healthy() error { return l.pleg.Healthy() }

// Ready returns nil when every source has defined its pods and the first relist is complete. Until
// then, the loop must not remove the data of pods that it does not know.
func (l *Loop) Ready() error {
	errs := []error{l.unanswered()}
	select {
	case <-l.listed:
	default:
		errs = append(errs, errors.New("the first relist of the runtime is not complete yet"))
	}
	return errors.Join(errs...)
}

// triggerIfReady triggers housekeeping and an evaluation of the eviction thresholds if [Loop.Ready]
// returns nil. It is called when the last source has defined its pods, and when the first relist is
// complete.
func (l *Loop) triggerIfReady() {
	if l.Ready() == nil {
		l.housekeepingLoop.Trigger()
		l.cfg.Node.EvaluateThresholds()
	}
}

// unanswered returns an error that names the sources that have not defined their pods yet. It
// returns nil when every source has defined its pods, and the loop has handled these definitions.
func (l *Loop) unanswered() error {
	l.mu.RLock()
	ready := l.ready
	l.mu.RUnlock()
	if ready {
		return nil
	}
	return fmt.Errorf("not every source has defined its pods yet: waiting for %s", cmp.Or(strings.Join(l.merge.UnreadSources(), ", "), "the last change to be applied"))
}

// CleanedUp reports whether a pod has no sandbox, no container and no log left, and is not being
// removed.
func (l *Loop) CleanedUp(uid types.UID) bool {
	r, _ := l.record(uid)
	s, err := l.cache.Get(uid)
	if err != nil || r.removing || existsInRuntime(s) {
		return false
	}
	if l.cfg.PodLogs == "" {
		return true
	}
	logs, err := filepath.Glob(filepath.Join(l.cfg.PodLogs, "*_"+string(uid)))
	return err == nil && len(logs) == 0
}

// ContentRemovable reports whether garbage collection may remove the containers of a pod.
func (l *Loop) ContentRemovable(uid types.UID) bool {
	return l.workers.ShouldPodContentBeRemoved(uid) && !l.protectedFromGC(uid)
}

// RuntimeRemovable reports whether garbage collection may remove the sandboxes of a pod.
func (l *Loop) RuntimeRemovable(uid types.UID) bool {
	return l.workers.ShouldPodRuntimeBeRemoved(uid) && !l.protectedFromGC(uid)
}

// protectedFromGC reports whether garbage collection must skip a pod. It must skip a pod that
// the remover removes or will remove. It must also skip a pod that waits for admission, because
// the old containers of the pod show whether the pod has ended.
func (l *Loop) protectedFromGC(uid types.UID) bool {
	s, _ := l.cache.Get(uid) // on an error, use the last known status
	r, known := l.record(uid)
	return r.removing || known && r.state == Offered || (!known || r.leaving()) && existsInRuntime(s)
}

// RunHook runs a hook of a container and returns when the hook has ended. It records a failure
// of the hook as an event.
func (l *Loop) RunHook(ctx context.Context, hook lifecycle.Hook) { l.hooks.Run(ctx, hook) }
