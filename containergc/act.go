package containergc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"
)

// act executes the plan: it removes the objects of each pod in the order of the plan, and
// handles several pods at a time.
func (m *Manager) act(ctx context.Context, p Plan) (removed []Object, err error) {
	var errs []error
	var (
		tasks    []*task
		byPod    = map[types.UID]*task{}
		timeouts = &atomic.Int32{}
	)
	for i := range p.Decisions {
		d := &p.Decisions[i]
		if !d.Remove {
			continue
		}
		t := byPod[d.PodUID]
		if t == nil {
			t = &task{m: m, timeouts: timeouts}
			byPod[d.PodUID] = t
			tasks = append(tasks, t)
		}
		t.todo = append(t.todo, d)
		if mustStop(d) {
			t.rank = 1
		}
	}
	slices.SortStableFunc(tasks, func(a, b *task) int { return cmp.Compare(a.rank, b.rank) })
	var running sync.WaitGroup
	slots := make(chan struct{}, m.cfg.Workers)
	for _, t := range tasks {
		slots <- struct{}{}
		running.Go(func() {
			t.run(ctx)
			<-slots
		})
	}
	running.Wait()
	for _, t := range tasks {
		removed = append(removed, t.removed...)
		errs = append(errs, t.errs...)
	}
	if slices.ContainsFunc(tasks, func(t *task) bool { return t.unresponsive }) {
		errs = append(errs, errUnresponsive)
	}
	return removed, errors.Join(append(errs, ctx.Err())...)
}

// errUnresponsive is the error of a pass in which as many calls timed out as there are workers. Such a
// pass skips the other objects: with thousands of objects, waiting for every timeout would take hours.
var errUnresponsive = errors.New("the runtime does not respond: the next pass removes the remaining objects")

// task is the removal of the objects of one pod, and its results.
type task struct {
	m         *Manager
	timeouts  *atomic.Int32 // calls of the pass that timed out
	rank      int           // 1: runs last, because stopping a container may take its whole grace period
	todo      []*Decision
	removed   []Object
	remaining []*Decision // objects that were not removed
	errs      []error
	// unresponsive means that the task skipped objects because the runtime does not respond.
	unresponsive bool
}

// mustStop reports whether a container must be stopped before it is removed. A container
// in an unknown state may run, and runtimes refuse to remove it.
func mustStop(d *Decision) bool {
	return d.Kind == KindContainer && d.container.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func (t *task) run(ctx context.Context) {
	for _, d := range t.todo {
		if ctx.Err() != nil {
			return
		}
		if int(t.timeouts.Load()) >= t.m.cfg.Workers {
			t.unresponsive = true
			return // the next pass removes the remaining objects
		}
		if t.isBlocked(d) || !t.m.startRemoval(d.ID) {
			t.remaining = append(t.remaining, d)
			continue
		}
		began := t.m.cfg.Clock.Now()
		err := t.remove(ctx, d)
		t.m.endRemoval(d.ID)
		if err == nil {
			t.removed = append(t.removed, d.Object)
		} else {
			err = fmt.Errorf("remove %s: %w", d.Object, err)
			t.errs = append(t.errs, err)
			t.remaining = append(t.remaining, d)
		}
		if ctx.Err() == nil {
			t.m.recordResult(d.ID, err)
		}
		t.m.cfg.Observer.Removed(d.Object, t.m.cfg.Clock.Since(began), err)
	}
}

// startRemoval marks an object as being removed by the caller. It returns false if
// another pass is removing it.
func (m *Manager) startRemoval(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removing[id] {
		return false
	}
	m.removing[id] = true
	return true
}

func (m *Manager) endRemoval(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.removing, id)
}

// isBlocked reports whether the object of d must not be removed now: another object that needs
// this object was not removed, the pod needs this object again, or the object is a link whose
// target exists.
func (t *task) isBlocked(d *Decision) bool {
	switch d.Kind {
	case KindContainer:
		return d.unused && !t.m.cfg.Pods.ShouldPodRuntimeBeRemoved(d.PodUID)
	case KindSandbox:
		return t.hasRemaining(func(c *Decision) bool { return c.container.SandboxID == d.ID })
	case KindLogs:
		return t.hasRemaining(func(c *Decision) bool { return c.Name == d.Name && c.Attempt == d.Attempt })
	case KindLogFolder: // a static pod may return with the same UID
		return len(t.remaining) > 0 || !t.m.cfg.Pods.ShouldPodContentBeRemoved(d.PodUID)
	case KindLogLink:
		if t.hasRemaining(func(c *Decision) bool {
			return c.container == d.container && c.container.State != runtimeapi.ContainerState_CONTAINER_EXITED
		}) {
			return true // the link's container may write to the log again
		}
		_, err := os.Stat(filepath.Join(t.m.cfg.ContainerLogs, d.ID))
		return !errors.Is(err, fs.ErrNotExist)
	default:
		return false
	}
}

// hasRemaining reports whether a container that matches was not removed.
func (t *task) hasRemaining(matches func(*Decision) bool) bool {
	return slices.ContainsFunc(t.remaining, func(d *Decision) bool { return d.Kind == KindContainer && matches(d) })
}

// remove removes one object. It is no error if the object does not exist any more.
func (t *task) remove(ctx context.Context, d *Decision) error {
	cfg := &t.m.cfg
	switch d.Kind {
	case KindContainer:
		if mustStop(d) {
			if err := t.stop(ctx, d); err != nil {
				return fmt.Errorf("stop the container before its removal: %w", err)
			}
			d.container.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		return t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.RemoveContainer(ctx, d.ID) })
	case KindSandbox:
		// A sandbox that is not ready may still have its network, so it is stopped first.
		if err := t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.StopPodSandbox(ctx, d.ID) }); err != nil {
			return fmt.Errorf("stop the sandbox before its removal: %w", err)
		}
		return t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.RemovePodSandbox(ctx, d.ID) })
	case KindLogs:
		return removeBelow(cfg.PodLogs, d.files...)
	case KindLogFolder:
		return removeBelow(cfg.PodLogs, d.ID)
	case KindLogLink:
		return removeBelow(cfg.ContainerLogs, d.ID)
	default:
		return nil
	}
}

// call makes a call to the runtime with a timeout: the duration that the call is expected to
// take on a working runtime, plus CallTimeout. After a timeout, call increments t.timeouts. If
// the object does not exist, call returns no error.
func (t *task) call(ctx context.Context, expected time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, expected+t.m.cfg.CallTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.timeouts.Add(1)
	}
	return ignoreNotFound(err)
}

// stop stops a container in an unknown state, in the same way as the kubelet stops a
// container of an unknown pod.
func (t *task) stop(ctx context.Context, d *Decision) error {
	t.m.event(d, corev1.EventTypeNormal, ReasonKilling, "Container is in unknown state, try killing it before removal")
	grace := d.container.StopGrace
	if d.container.PreStop != "" && grace > 0 && t.m.cfg.PreStop != nil {
		began := t.m.cfg.Clock.Now()
		t.m.preStop(ctx, d)
		grace -= t.m.cfg.Clock.Since(began).Truncate(time.Second)
	}
	grace = max(grace, minGracePeriod)
	return t.call(ctx, grace, func(ctx context.Context) error {
		return t.m.cfg.Remover.StopContainer(ctx, d.ID, int64(grace/time.Second))
	})
}

// preStop runs the preStop hook of a container for at most the container's grace period.
func (m *Manager) preStop(ctx context.Context, d *Decision) {
	ctx, cancel := context.WithTimeout(ctx, d.container.StopGrace)
	defer cancel()
	if err := m.cfg.PreStop(ctx, *d.container); err != nil {
		m.cfg.Logger.ErrorContext(ctx, "preStop hook of a container failed, the container is stopped anyway", "container", d.Name, "containerID", d.ID, "pod", d.Namespace+"/"+d.Pod, "err", err)
		m.event(d, corev1.EventTypeWarning, ReasonFailedPreStop, "PreStopHook failed")
	}
}

// event records an event about a container.
func (m *Manager) event(d *Decision, kind, reason, message string) {
	if m.cfg.Recorder == nil {
		return
	}
	m.cfg.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: d.Namespace, Name: d.Pod, UID: d.PodUID,
		FieldPath: "implicitly required container " + d.Name, // as in the kubelet for a container without its pod
	}, kind, reason, "%s", message)
}

func ignoreNotFound(err error) error {
	if criapierrors.IsNotFound(err) {
		return nil
	}
	return err
}
