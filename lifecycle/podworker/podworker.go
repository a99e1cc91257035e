package podworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

var (
	// ErrRunning means that Run was called while it is running.
	ErrRunning = errors.New("already running")
	// ErrStopped means that Run returned before the pod had ended. The pod will
	// be terminated when Run is called again.
	ErrStopped = errors.New("the pod workers have stopped")
)

// Workers run the life cycle of pods. They sync many pods concurrently, but
// each pod has at most one running sync. Create them with [New]. All methods
// except Run may be called by any number of goroutines.
type Workers struct {
	cfg  Config
	loop *loop.Loop // starts due workers

	mu     sync.Mutex
	pods   map[types.UID]*worker
	queue  queue
	wake   time.Time // when the loop wakes up by itself
	static staticQueue
	// synced: SyncKnownPods was called, so an unknown pod is not desired.
	synced bool
	// sweep counts the calls of SyncKnownPods. known is the result of the last
	// call, nil if something has changed since then.
	sweep uint64
	known map[types.UID]Known
	// updates counts the updates whose field Pod is not nil.
	updates uint64
	// forgotten contains each forgotten pod for which the Syncer was called,
	// until the second call of SyncKnownPods after the pod was forgotten. If a
	// pod is created again with the same UID, its first sync must not use a
	// status from before the end of the forgotten pod's last sync.
	forgotten map[types.UID]forgottenPod
	// run is the context of Run, nil while Run is not running. stopped: Run has
	// returned, or only waits for syncs.
	run     context.Context
	stopped bool
	// syncs are the goroutines of workers. The method start adds a goroutine
	// only if acceptsSyncs returns true.
	syncs sync.WaitGroup
}

// worker is the record of one pod. It has a goroutine only during a sync.
type worker struct {
	state

	uid  types.UID
	name string // the full name of a static pod, else empty
	// since is the oldest time that the status of the next sync may have: 1 ns
	// after the end of the last sync, or the time that the last sync passed to
	// Refreshed. lastErr is the error of the last sync.
	since   time.Time
	lastErr error

	deadline     *lifecycle.Deadline // nil before the first terminating sync
	resumed      bool                // the pod was being deleted when it became known
	usesDeadline atomic.Bool         // the running sync uses the deadline

	working    bool               // the worker has a goroutine
	cancel     context.CancelFunc // cancels the running sync, nil if no sync runs
	due        time.Time          // when the next sync is due
	queueIndex int                // index in the queue
	desired    uint64             // Workers.sweep when the pod was last desired, or when it became known
	updated    uint64             // Workers.updates at the last update of the pod

	phaseChanges []phaseChange // not yet reported to the observer
	notifying    bool          // a goroutine is calling the observer
}

// phaseChange is a change of a pod's phase.
type phaseChange struct {
	pod   *corev1.Pod
	phase Phase
}

// forgottenPod is the record of a forgotten pod: the field since of its worker,
// and the value of Workers.sweep when the pod was forgotten.
type forgottenPod struct {
	since time.Time
	sweep uint64
}

// New returns Workers that have no pods. They do nothing until [Workers.Run] is
// called. The error reports every problem with cfg.
func New(cfg Config) (*Workers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podworker: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Workers{
		cfg:       cfg,
		loop:      loop.New(cfg.Clock),
		pods:      map[types.UID]*worker{},
		forgotten: map[types.UID]forgottenPod{},
		static:    staticQueue{queues: map[string][]types.UID{}},
		queue:     newQueue(),
	}, nil
}

// Run syncs pods until ctx is done. Then it cancels all syncs, waits for them,
// and returns nil. Callers that wait in [Workers.KillPod] get [ErrStopped]. A
// second Run during the first returns [ErrRunning]. After Run has returned, it
// may be called again, and continues with the same pods.
func (w *Workers) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.run != nil {
		w.mu.Unlock()
		return ErrRunning
	}
	w.run, w.stopped = ctx, false
	for _, p := range w.pods {
		w.start(p)
	}
	w.mu.Unlock()

	err := w.loop.Run(ctx, w.startDue)

	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.syncs.Wait() // the method start adds nothing any more, because ctx is done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = nil
	for _, p := range w.pods {
		w.notifyWaiters(p.waiters, ErrStopped)
		p.waiters = nil
	}
	return err
}

// idle is how long the loop sleeps if the queue is empty. loop.Trigger wakes it
// earlier.
const idle = time.Hour

// startDue starts the due workers and returns the time until the next worker is
// due.
func (w *Workers) startDue(context.Context) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	for p := w.queue.First(); p != nil; p = w.queue.First() {
		if wait := p.due.Sub(now); wait > 0 {
			w.wake = p.due
			return wait
		}
		w.queue.Remove(p)
		p.pending = true
		w.start(p)
	}
	w.wake = now.Add(idle)
	return idle
}

// schedule schedules p's next sync for the given time. An update can start the
// sync earlier.
func (w *Workers) schedule(p *worker, due time.Time) {
	w.queue.set(p, due)
	if due.Before(w.wake) {
		w.wake = due
		w.loop.Trigger()
	}
}

// start starts p's goroutine, which runs p's syncs. It does nothing if p already
// has a goroutine, if no sync is due, or if a sync must not start yet: see
// acceptsSyncs and blocked.
func (w *Workers) start(p *worker) {
	if !w.acceptsSyncs() || p.working || !p.pending || w.blocked(p) {
		return
	}
	p.working = true
	w.syncs.Go(func() { w.work(p) })
}

// acceptsSyncs reports whether syncs may start. When Run's ctx is done, no sync
// may start: it would fail at once, again and again.
func (w *Workers) acceptsSyncs() bool { return w.run != nil && w.run.Err() == nil }

// blocked reports whether p must wait for another static pod of its name.
// Terminating pods never wait.
func (w *Workers) blocked(p *worker) bool {
	return p.phase == Syncing && p.name != "" && w.static.waits(p.name, p.uid)
}

// UpdatePod passes an update to the pod's worker. It does not wait for the
// worker. Only the newest update counts; earlier updates that no sync has used
// yet are skipped. But an update that terminates a pod always takes effect.
//
// UpdatePod ignores the following updates, and passes them to
// [Observer.Ignored]:
//
//   - an invalid update: it has no pod, no UID or an unknown type, or it has no
//     spec and is not a Kill
//   - a Sync of an unknown pod
//   - a Create of a pod that is Terminating or Terminated
//   - an update of a Finished pod
//   - a Kill of a Terminated pod, if the update has no spec
func (w *Workers) UpdatePod(u Update) { w.update(u, nil) }

// runs reports whether, according to the cache, a part of the pod may be
// running: see podcache.Status.Running. It also returns true if the runtime
// returned an error for the pod or was not queried yet.
func (w *Workers) runs(uid types.UID) bool {
	if !w.cfg.Cache.Known(uid) {
		return true
	}
	s, err := w.cfg.Cache.Get(uid)
	return err != nil || s != nil && s.Running()
}

// update applies u to the pod's record and carries out the effects. The channel
// done, if not nil, receives nil when the pod has ended, or ErrStopped when Run
// returns before that.
func (w *Workers) update(u Update, done chan<- error) {
	uid := u.uid()
	runs := w.runsFact(u)

	w.mu.Lock()
	p, known := w.pods[uid]
	if !known {
		p = &worker{uid: uid, since: w.forgotten[uid].since, desired: w.sweep}
		p.resumed = u.Type == Create && u.Pod != nil && u.Pod.DeletionTimestamp != nil
		if u.Pod != nil && podspec.IsStatic(u.Pod) {
			p.name = podspec.FullName(u.Pod)
		}
	}
	if u.Pod != nil {
		w.updates++
		p.updated = w.updates
	}
	before, described := p.phase, p.pod != nil
	next, e := applyUpdate(p.state, u, done, facts{known: known, runs: runs, waits: p.name != "" && w.static.waits(p.name, uid)})
	p.state = next
	if e.ignored == "" {
		if !known {
			w.add(p)
		}
		if described != (p.pod != nil) {
			w.known = nil
		}
		w.applyEffects(p, before, e)
	} else {
		w.notifyWaiters(e.report, nil)
	}
	hasChanges := len(p.phaseChanges) > 0
	w.mu.Unlock()

	if e.ignored != "" {
		w.cfg.Observer.Ignored(u, e.ignored)
	}
	if hasChanges {
		w.notifyPhaseChanges(p)
	}
}

// runsFact returns the value of facts.runs for applyUpdate: whether containers
// of the pod may be running. It queries the cache only if applyUpdate needs the
// value:
//
//   - for a pod with a terminal phase, which may have ended before this agent
//     started
//   - for a static pod, which may never have started
//   - for a pod that is killed
//
// For other pods it returns false. For an update without a spec it returns
// true, because such a pod was found in the runtime.
func (w *Workers) runsFact(u Update) bool {
	if u.Pod == nil {
		return true
	}
	isNeeded := u.Type == Kill || podspec.IsTerminal(u.Pod.Status.Phase) || podspec.IsStatic(u.Pod)
	return isNeeded && w.runs(u.Pod.UID)
}

func (u Update) uid() types.UID {
	switch {
	case u.Pod != nil:
		return u.Pod.UID
	case u.Running != nil:
		return u.Running.UID
	default:
		return ""
	}
}

// add adds p to the known pods.
func (w *Workers) add(p *worker) {
	w.pods[p.uid], w.known = p, nil
	if p.name != "" && p.phase < Terminated {
		w.static.add(p.name, p.uid)
	}
}

// applyEffects carries out the effects of a decision about p.
func (w *Workers) applyEffects(p *worker, before Phase, e effects) {
	if p.phase != before {
		w.recordPhaseChange(p)
	}
	if w.stopped {
		w.notifyWaiters(p.waiters, ErrStopped)
		p.waiters = nil
	}
	w.notifyWaiters(e.report, nil)
	if e.cancel && p.cancel != nil && !p.usesDeadline.Load() {
		p.cancel()
	}
	if p.deadline != nil {
		p.deadline.Shorten(w.cfg.Clock.Now().Add(p.grace))
	}
	if p.phase == Finished {
		w.leave(p)
		return
	}
	w.start(p)
}

// recordPhaseChange records that p has entered the phase p.phase.
func (w *Workers) recordPhaseChange(p *worker) {
	w.known = nil
	p.phaseChanges = append(p.phaseChanges, phaseChange{p.pod, p.phase})
}

// notifyPhaseChanges calls the observer for the recorded phase changes. It
// holds no lock during the calls. Only one goroutine at a time makes these
// calls, so they are in the right order.
func (w *Workers) notifyPhaseChanges(p *worker) {
	w.mu.Lock()
	for !p.notifying && len(p.phaseChanges) > 0 {
		m := p.phaseChanges[0]
		p.phaseChanges, p.notifying = p.phaseChanges[1:], true
		w.mu.Unlock()
		w.cfg.Observer.PhaseChanged(p.uid, m.pod, m.phase)
		w.mu.Lock()
		p.notifying = false
	}
	w.mu.Unlock()
}

// leave removes p from the queues, and starts the next static pod of its name.
func (w *Workers) leave(p *worker) {
	w.queue.Remove(p)
	if p.name == "" {
		return
	}
	w.static.remove(p.name, p.uid)
	if first, ok := w.static.first(p.name); ok {
		w.start(w.pods[first])
	}
}

// notifyWaiters notifies all waiters. It never blocks, because each channel is
// buffered.
func (w *Workers) notifyWaiters(waiters []chan<- error, err error) {
	for _, c := range waiters {
		c <- err
	}
}
