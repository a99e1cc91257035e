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

// Pods returns all pods that a source defines or of which something is left, by namespace and
// name.
func (l *Loop) Pods() []Pod {
	var pods []Pod
	l.each(func(r record) { pods = append(pods, l.view(r)) })
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.Namespace, b.Spec.Namespace), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	return pods
}

// Pod returns one of Pods.
func (l *Loop) Pod(uid types.UID) (Pod, bool) {
	r, known := l.record(uid)
	if !known {
		return Pod{}, false
	}
	return l.view(r), true
}

func (l *Loop) view(r record) Pod {
	observed, _ := l.cache.Get(r.uid) // what was known before an error counts
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

// Find returns a pod as its source defines it, or as it was admitted.
func (l *Loop) Find(uid types.UID) (*corev1.Pod, bool) {
	r, known := l.record(uid)
	if !known || len(r.pod.Spec.Containers) == 0 {
		return nil, false
	}
	return r.pod, true
}

// Active returns the pods that hold something of the node, with their newest status, as eviction
// sees them.
func (l *Loop) Active() []*corev1.Pod {
	pods := l.running()
	for i, p := range pods {
		pods[i] = l.seen(p)
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

// Known returns what the workers know. It must not be modified.
func (l *Loop) Known() map[types.UID]podworker.Known { return l.workers.KnownPods() }

// Observed returns what the runtime shows of each pod, by UID.
func (l *Loop) Observed() []*podcache.Status { return l.cache.Statuses() }

// Await returns what the runtime shows of a pod once that is at least as new as since.
func (l *Loop) Await(ctx context.Context, uid types.UID, since time.Time) (*podcache.Status, error) {
	return l.cache.GetNewerThan(ctx, uid, since)
}

// RelistedAt returns when the newest list of the runtime that succeeded began.
func (l *Loop) RelistedAt() time.Time { return l.pleg.Stats().RelistedAt }

// Healthy returns why the runtime can't be listed, nil if it can.
func (l *Loop) Healthy() error { return l.pleg.Healthy() }

// Ready returns nil once every source has answered and the runtime was listed. Before that nothing
// may be removed for having no pod.
func (l *Loop) Ready() error {
	errs := []error{l.silent()}
	select {
	case <-l.looked:
	default:
		errs = append(errs, errors.New("the runtime was not listed yet"))
	}
	return errors.Join(errs...)
}

// silent returns an error that names the sources that have not answered, nil if all have.
func (l *Loop) silent() error {
	l.mu.RLock()
	ready := l.ready
	l.mu.RUnlock()
	if ready {
		return nil
	}
	return fmt.Errorf("not every source has answered yet: waiting for %s", cmp.Or(strings.Join(l.merge.Unanswered(), ", "), "its pods"))
}

// CleanedUp reports whether nothing is left of a pod in the runtime and among the logs, and no
// removal is under way.
func (l *Loop) CleanedUp(uid types.UID) bool {
	r, _ := l.record(uid)
	s, err := l.cache.Get(uid)
	if err != nil || r.removing || isShown(s) {
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
	return l.workers.ShouldPodContentBeRemoved(uid) && !l.isKept(uid)
}

// RuntimeRemovable reports whether garbage collection may remove the sandboxes of a pod.
func (l *Loop) RuntimeRemovable(uid types.UID) bool {
	return l.workers.ShouldPodRuntimeBeRemoved(uid) && !l.isKept(uid)
}

// isKept reports whether a pod is not for garbage collection: the remover has it or gets it, or
// it waits for admission, and what an earlier agent left of it decides whether it has ended.
func (l *Loop) isKept(uid types.UID) bool {
	s, _ := l.cache.Get(uid) // what was known before an error counts
	r, known := l.record(uid)
	return r.removing || known && r.state == Offered || (!known || r.leaving()) && isShown(s)
}

// RunHook runs a hook of a container and returns when it has ended. A failure is recorded as an
// event.
func (l *Loop) RunHook(ctx context.Context, hook lifecycle.Hook) { l.hooks.Run(ctx, hook) }
