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
		hung  = &atomic.Int32{}
	)
	for i := range p.Decisions {
		d := &p.Decisions[i]
		if !d.Remove {
			continue
		}
		t := tasks[d.PodUID]
		if t == nil {
			t = &task{m: m, in: in, hung: hung, failedBoxes: map[string]bool{}, failedLogs: map[logKey]bool{}, mayWrite: map[int]bool{}}
			tasks[d.PodUID] = t
			order = append(order, d.PodUID)
		}
		t.todo = append(t.todo, d)
		t.stops = t.stops || d.Kind == KindContainer && in.Snapshot.Containers[d.index].State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	// Stopping a container may take its whole grace period: after all others.
	slices.SortStableFunc(order, func(a, b types.UID) int { return cmp.Compare(tasks[a].rank(), tasks[b].rank()) })
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
	in      *Input
	hung    *atomic.Int32 // calls of the pass that did not return in time
	stops   bool          // it stops a container first
	todo    []*Decision
	removed []Object
	errs    []error
	// What did not go keeps what it needs: a container its sandbox and its logs.
	failed      bool
	failedBoxes map[string]bool
	failedLogs  map[logKey]bool
	mayWrite    map[int]bool // containers that did not go and have not ended
}

// rank returns 1 for tasks that come last.
func (t *task) rank() int {
	if t.stops {
		return 1
	}
	return 0
}

func (t *task) run(ctx context.Context) {
	for _, d := range t.todo {
		if t.blocked(d) || !t.claim(ctx, d) {
			continue
		}
		if ctx.Err() != nil || t.isOver() {
			t.settle(d, false)
			return // the next pass finds the rest
		}
		began := t.m.cfg.Clock.Now()
		err := t.remove(ctx, d)
		t.settle(d, err == nil)
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

// isOver reports whether the pass ends early.
func (t *task) isOver() bool { return int(t.hung.Load()) >= t.m.cfg.Workers }

// claim waits for the turn of an object and reports whether it is for this pass to
// remove. Files need no claim: they are removed at once.
func (t *task) claim(ctx context.Context, d *Decision) bool {
	if d.Kind != KindContainer && d.Kind != KindSandbox {
		return true
	}
	t.m.waitTurn(ctx, d.ID)
	gone, mine := t.m.claim(ctx, d.ID)
	if !gone && !mine {
		t.keep(d)
	}
	return mine
}

func (t *task) settle(d *Decision, removed bool) {
	if d.Kind == KindContainer || d.Kind == KindSandbox {
		t.m.settle(d.ID, removed)
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
		if t.mayWrite[d.index] {
			return true
		}
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
		c := &t.in.Snapshot.Containers[d.index]
		t.failed = true
		t.failedBoxes[c.SandboxID] = true
		t.failedLogs[logKey{d.PodUID, d.Name, d.Attempt}] = true
		t.mayWrite[d.index] = c.State != runtimeapi.ContainerState_CONTAINER_EXITED
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
			if err := t.stop(ctx, d, c); err != nil {
				return fmt.Errorf("stop it: %w", err)
			}
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
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
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.hung.Add(1)
	}
	return ignoreGone(err)
}

// stop stops a container as the kubelet stops one whose pod it may not know.
func (t *task) stop(ctx context.Context, d *Decision, c *Container) error {
	t.m.event(d, corev1.EventTypeNormal, ReasonKilling, "Container is in unknown state, try killing it before removal")
	grace := c.StopGrace
	if c.PreStop != "" && grace > 0 && t.m.cfg.PreStop != nil {
		began := t.m.cfg.Clock.Now()
		t.m.preStop(ctx, d, c)
		grace -= t.m.cfg.Clock.Since(began).Truncate(time.Second)
	}
	grace = max(grace, shortestGrace)
	return t.call(ctx, grace, func(ctx context.Context) error {
		return t.m.cfg.Remover.StopContainer(ctx, c.ID, int64(grace/time.Second))
	})
}

// preStop runs the hook of a container for no longer than its grace period.
func (m *Manager) preStop(ctx context.Context, d *Decision, c *Container) {
	ctx, cancel := context.WithTimeout(ctx, c.StopGrace)
	defer cancel()
	if err := m.cfg.PreStop(ctx, *c); err != nil {
		m.cfg.Logger.ErrorContext(ctx, "preStop hook failed", "container", d.Name, "containerID", c.ID, "pod", d.Namespace+"/"+d.Pod, "err", err)
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

// claim is the removal of a container or a sandbox by one pass.
type claim struct {
	ended chan struct{}
	gone  bool // set before ended is closed
}

// patience is how long a pass waits for another that removes the same object, in real
// time.
const patience = 10 * time.Second

// claim reports whether another pass has removed a container or a sandbox, and if not,
// whether it is for the caller to remove.
func (m *Manager) claim(ctx context.Context, id string) (gone, mine bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m.mu.Lock()
		c := m.claims[id]
		if c == nil {
			m.claims[id] = &claim{ended: make(chan struct{})}
		}
		m.mu.Unlock()
		if c == nil {
			return false, true
		}
		select {
		case <-c.ended:
			if c.gone {
				return true, false
			}
		case <-ctx.Done():
			return false, false
		}
	}
}

// settle ends a claim. What was removed stays noted, because passes that are under way
// may have planned to remove it as well.
func (m *Manager) settle(id string, removed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[id]
	if c.gone = removed; !removed {
		delete(m.claims, id)
	}
	close(c.ended)
}

// release ends a pass.
func (m *Manager) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passes--; m.passes == 0 {
		clear(m.claims)
	}
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
	m.failures[id] = m.failures[id].again(m.cfg.Clock.Now())
}

// holds reports whether it is too early to try again. If the clock has stepped back since,
// it is not.
func (f failure) holds(now time.Time) bool { return f.until.After(now) && f.until.Sub(now) <= f.delay }

// again returns what is known after one more failure.
func (f failure) again(now time.Time) failure {
	delay := min(max(firstRetry, 2*f.delay), lastRetry)
	return failure{delay, now.Add(delay)}
}

// retries returns when what failed is tried again: after its delay, or at once if
// the clock has stepped back since.
func (m *Manager) retries(now time.Time) map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) == 0 {
		return nil
	}
	at := make(map[string]time.Time, len(m.failures))
	for id, f := range m.failures {
		if f.holds(now) {
			at[id] = f.until
		}
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

// waitTurn waits for a turn to remove an object, or the end of ctx. Nobody waits while
// somebody needs the disk, nor for what another pass removes.
func (m *Manager) waitTurn(ctx context.Context, id string) {
	m.mu.Lock()
	claimed := m.claims[id] != nil
	m.mu.Unlock()
	if claimed || m.pace.every == 0 || m.urgent.Load() > 0 {
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
