package containergc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"
	"k8s.io/utils/clock"
)

// What failed to go is tried again after firstRetry, then twice as long each time,
// up to lastRetry.
const (
	firstRetry = time.Minute
	lastRetry  = 15 * time.Minute
)

// failure is what is known of an object that would not go.
type failure struct {
	delay time.Duration
	until time.Time
}

// act removes what the plan says: the pods' objects in their order, several pods at
// a time.
func (m *Manager) act(ctx context.Context, in *Input, p Plan) ([]Object, error) {
	var (
		order []types.UID
		tasks = map[types.UID]*task{}
	)
	for i := range p.Decisions {
		d := &p.Decisions[i]
		if !d.Remove {
			continue
		}
		t := tasks[d.PodUID]
		if t == nil {
			t = &task{m: m, in: in, failedBoxes: map[string]bool{}, failedLogs: map[logKey]bool{}}
			tasks[d.PodUID] = t
			order = append(order, d.PodUID)
		}
		t.todo = append(t.todo, d)
	}
	queue := make(chan *task, len(order))
	for _, uid := range order {
		queue <- tasks[uid]
	}
	close(queue)
	var wg sync.WaitGroup
	for range min(m.cfg.Workers, len(order)) {
		wg.Go(func() {
			for t := range queue {
				t.run(ctx)
			}
		})
	}
	wg.Wait()
	var (
		removed []Object
		errs    []error
	)
	for _, uid := range order {
		removed = append(removed, tasks[uid].removed...)
		errs = append(errs, tasks[uid].errs...)
	}
	return removed, errors.Join(append(errs, ctx.Err())...)
}

// task is what is to be removed of one pod, and what came of it.
type task struct {
	m       *Manager
	in      *Input
	todo    []*Decision
	removed []Object
	errs    []error
	// What did not go keeps what it needs: a container its sandbox and its logs.
	failed      bool
	failedBoxes map[string]bool
	failedLogs  map[logKey]bool
}

func (t *task) run(ctx context.Context) {
	for _, d := range t.todo {
		if t.blocked(d) {
			continue
		}
		if d.Kind == KindContainer || d.Kind == KindSandbox {
			t.m.waitTurn(ctx)
		}
		if ctx.Err() != nil {
			return // the next pass finds the rest
		}
		began := t.m.cfg.Clock.Now()
		err := t.remove(ctx, d)
		if err == nil {
			t.removed = append(t.removed, d.Object)
		} else {
			err = fmt.Errorf("remove %s: %w", d.Object, err)
			t.errs = append(t.errs, err)
			t.keep(d)
		}
		if ctx.Err() == nil {
			t.m.note(d.ID, err)
		}
		t.m.cfg.Observer.Removed(d.Object, t.m.cfg.Clock.Since(began), err)
	}
}

// blocked says whether something that needs d is still there, or has come back.
func (t *task) blocked(d *Decision) bool {
	pods := t.m.cfg.Pods
	switch d.Kind {
	case KindContainer:
		if d.unused && !pods.ShouldPodRuntimeBeRemoved(d.PodUID) {
			t.keep(d)
			return true
		}
		return false
	case KindSandbox:
		return t.failedBoxes[d.ID]
	case KindLogs:
		return t.failedLogs[logKey{d.PodUID, d.Name, d.Attempt}]
	case KindLogFolder: // a static pod may come again with its UID
		return t.failed || !pods.ShouldPodContentBeRemoved(d.PodUID)
	case KindLogLink:
		_, err := os.Stat(filepath.Join(t.m.cfg.ContainerLogs, d.ID))
		return !errors.Is(err, fs.ErrNotExist)
	default:
		return false
	}
}

// keep notes that d is still there.
func (t *task) keep(d *Decision) {
	switch d.Kind {
	case KindContainer:
		t.failed = true
		t.failedBoxes[t.in.Snapshot.Containers[d.index].SandboxID] = true
		t.failedLogs[logKey{d.PodUID, d.Name, d.Attempt}] = true
	case KindSandbox:
		t.failed = true
	default:
	}
}

// remove removes one object. What is gone already is no error.
func (t *task) remove(ctx context.Context, d *Decision) error {
	cfg := &t.m.cfg
	switch d.Kind {
	case KindContainer:
		c := &t.in.Snapshot.Containers[d.index]
		if c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			// It may run, and runtimes refuse to remove what they cannot see.
			if err := t.call(ctx, c.StopGrace, func(ctx context.Context) error {
				return cfg.Remover.StopContainer(ctx, c.ID, int64(c.StopGrace/time.Second))
			}); err != nil {
				return fmt.Errorf("stop it: %w", err)
			}
		}
		return t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.RemoveContainer(ctx, c.ID) })
	case KindSandbox:
		// Its network may still be there.
		if err := t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.StopPodSandbox(ctx, d.ID) }); err != nil {
			return fmt.Errorf("stop it: %w", err)
		}
		return t.call(ctx, 0, func(ctx context.Context) error { return cfg.Remover.RemovePodSandbox(ctx, d.ID) })
	case KindLogs:
		return removeBelow(cfg.PodLogs, t.in.Folders[d.index].Attempts[d.logs].Files...)
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
	return ignoreGone(do(ctx))
}

func ignoreGone(err error) error {
	if criapierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// note remembers a failure, or forgets it.
func (m *Manager) note(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.failures, id)
		return
	}
	delay := min(max(firstRetry, 2*m.failures[id].delay), lastRetry)
	m.failures[id] = failure{delay, m.cfg.Clock.Now().Add(delay)}
}

// retries returns when what failed is tried again.
func (m *Manager) retries() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) == 0 {
		return nil
	}
	at := make(map[string]time.Time, len(m.failures))
	for id, f := range m.failures {
		at[id] = f.until
	}
	return at
}

// forget drops what is known of objects that are gone.
func (m *Manager) forget(p Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) == 0 {
		return
	}
	here := make(map[string]failure, len(m.failures))
	for i := range p.Decisions {
		if f, ok := m.failures[p.Decisions[i].ID]; ok {
			here[p.Decisions[i].ID] = f
		}
	}
	m.failures = here
}

// pace spreads removals over time.
type pace struct {
	every time.Duration // 0: no limit

	mu   sync.Mutex
	next time.Time
}

// take returns how long to wait for the next turn, and takes it.
func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	return wait
}

// waitTurn waits for a turn or the end of ctx. Nobody waits while somebody needs the
// disk.
func (m *Manager) waitTurn(ctx context.Context) {
	if m.pace.every == 0 || m.urgent.Load() > 0 {
		return
	}
	wait(ctx, m.cfg.Clock, m.pace.take(m.cfg.Clock.Now()))
}

func wait(ctx context.Context, c clock.Clock, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
