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

// act removes what the plan says: the pods' objects in their order, several pods at
// a time.
func (m *Manager) act(ctx context.Context, p Plan) (removed []Object, err error) {
	var errs []error
	var (
		tasks []*task
		byPod = map[types.UID]*task{}
		hung  = &atomic.Int32{}
	)
	for i := range p.Decisions {
		d := &p.Decisions[i]
		if !d.Remove {
			continue
		}
		t := byPod[d.PodUID]
		if t == nil {
			t = &task{m: m, hung: hung}
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
	if int(hung.Load()) >= m.cfg.Workers && ctx.Err() == nil {
		errs = append(errs, errHung)
	}
	return removed, errors.Join(append(errs, ctx.Err())...)
}

// errHung is why a pass ends early: with thousands of objects it would last for hours.
var errHung = errors.New("the runtime does not answer: the rest is left to the next pass")

// task is what is to be removed of one pod, and what came of it.
type task struct {
	m       *Manager
	hung    *atomic.Int32 // calls of the pass that did not return in time
	rank    int           // 1: comes last, because to stop a container may take its whole grace period
	todo    []*Decision
	removed []Object
	kept    []*Decision // that could not be removed
	errs    []error
}

// mustStop reports whether a container has to be stopped before it is removed. It may run,
// and runtimes refuse to remove what they cannot see.
func mustStop(d *Decision) bool {
	return d.Kind == KindContainer && d.container.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func (t *task) run(ctx context.Context) {
	for _, d := range t.todo {
		if ctx.Err() != nil || int(t.hung.Load()) >= t.m.cfg.Workers {
			return // the next pass finds the rest
		}
		if t.isBlocked(d) || !t.m.claim(d.ID) {
			t.kept = append(t.kept, d)
			continue
		}
		began := t.m.cfg.Clock.Now()
		err := t.remove(ctx, d)
		t.m.unclaim(d.ID)
		if err == nil {
			t.removed = append(t.removed, d.Object)
		} else {
			err = fmt.Errorf("remove %s: %w", d.Object, err)
			t.errs = append(t.errs, err)
			t.kept = append(t.kept, d)
		}
		if ctx.Err() == nil {
			t.m.note(d.ID, err)
		}
		t.m.cfg.Observer.Removed(d.Object, t.m.cfg.Clock.Since(began), err)
	}
}

// claim reports whether no other pass is removing an object, so that the caller may.
func (m *Manager) claim(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removing[id] {
		return false
	}
	m.removing[id] = true
	return true
}

func (m *Manager) unclaim(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.removing, id)
}

// isBlocked reports whether something that needs d is still there, or has come back.
func (t *task) isBlocked(d *Decision) bool {
	switch d.Kind {
	case KindContainer:
		return d.unused && !t.m.cfg.Pods.ShouldPodRuntimeBeRemoved(d.PodUID)
	case KindSandbox:
		return t.keptContainer(func(c *Decision) bool { return c.container.SandboxID == d.ID })
	case KindLogs:
		return t.keptContainer(func(c *Decision) bool { return c.Name == d.Name && c.Attempt == d.Attempt })
	case KindLogFolder: // a static pod may come again with its UID
		return len(t.kept) > 0 || !t.m.cfg.Pods.ShouldPodContentBeRemoved(d.PodUID)
	case KindLogLink:
		if t.keptContainer(func(c *Decision) bool {
			return c.container == d.container && c.container.State != runtimeapi.ContainerState_CONTAINER_EXITED
		}) {
			return true // it may write again
		}
		_, err := os.Stat(filepath.Join(t.m.cfg.ContainerLogs, d.ID))
		return !errors.Is(err, fs.ErrNotExist)
	default:
		return false
	}
}

// keptContainer reports whether such a container could not be removed.
func (t *task) keptContainer(is func(*Decision) bool) bool {
	return slices.ContainsFunc(t.kept, func(d *Decision) bool { return d.Kind == KindContainer && is(d) })
}

// remove removes one object. What is gone already is no error.
func (t *task) remove(ctx context.Context, d *Decision) error {
	cfg := &t.m.cfg
	switch d.Kind {
	case KindContainer:
		if mustStop(d) {
			if err := t.stop(ctx, d); err != nil {
				return fmt.Errorf("stop it: %w", err)
			}
			d.container.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		return t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.RemoveContainer(ctx, d.ID) })
	case KindSandbox:
		// Its network may still be there.
		if err := t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.StopPodSandbox(ctx, d.ID) }); err != nil {
			return fmt.Errorf("stop it: %w", err)
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

// call bounds a call by its deadline, which begins after what it takes anyway.
func (t *task) call(ctx context.Context, anyway time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, anyway+t.m.cfg.CallTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.hung.Add(1)
	}
	return ignoreGone(err)
}

// stop stops a container as the kubelet stops one whose pod it may not know.
func (t *task) stop(ctx context.Context, d *Decision) error {
	t.m.event(d, corev1.EventTypeNormal, ReasonKilling, "Container is in unknown state, try killing it before removal")
	grace := d.container.StopGrace
	if d.container.PreStop != "" && grace > 0 && t.m.cfg.PreStop != nil {
		began := t.m.cfg.Clock.Now()
		t.m.preStop(ctx, d)
		grace -= t.m.cfg.Clock.Since(began).Truncate(time.Second)
	}
	grace = max(grace, shortestGrace)
	return t.call(ctx, grace, func(ctx context.Context) error {
		return t.m.cfg.Remover.StopContainer(ctx, d.ID, int64(grace/time.Second))
	})
}

// preStop runs the hook of a container for no longer than its grace period.
func (m *Manager) preStop(ctx context.Context, d *Decision) {
	ctx, cancel := context.WithTimeout(ctx, d.container.StopGrace)
	defer cancel()
	if err := m.cfg.PreStop(ctx, *d.container); err != nil {
		m.cfg.Logger.ErrorContext(ctx, "preStop hook failed", "container", d.Name, "containerID", d.ID, "pod", d.Namespace+"/"+d.Pod, "err", err)
		m.event(d, corev1.EventTypeWarning, ReasonFailedPreStop, "PreStopHook failed")
	}
}

// event makes an event about a container.
func (m *Manager) event(d *Decision, kind, reason, message string) {
	if m.cfg.Recorder == nil {
		return
	}
	m.cfg.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: d.Namespace, Name: d.Pod, UID: d.PodUID,
		FieldPath: "implicitly required container " + d.Name, // as the kubelet has it of one without its pod
	}, kind, reason, "%s", message)
}

func ignoreGone(err error) error {
	if criapierrors.IsNotFound(err) {
		return nil
	}
	return err
}
