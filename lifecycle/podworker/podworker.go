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
	// ErrRunning says that the Workers are running already.
	ErrRunning = errors.New("already running")
	// ErrStopped says that the Workers stopped before the pod had ended. It was
	// told to end: it does when they run again.
	ErrStopped = errors.New("the pod workers have stopped")
)

// Workers bring pods through their lives: one turn of one pod at a time, many
// pods at once. Make them with [New]; all methods may be called by any number of
// goroutines, and Run by one.
type Workers struct {
	cfg  Config
	loop *loop.Loop // starts workers that are due

	mu    sync.Mutex
	pods  map[types.UID]*worker
	queue queue
	wake  time.Time // when the loop looks at the queue by itself
	gate  gate
	// synced says that SyncKnownPods was called: an unknown pod is not wanted.
	synced bool
	// sweep counts the calls of SyncKnownPods, and known is what the last one
	// returned if nothing has changed since.
	sweep uint64
	known map[types.UID]Known
	// updates counts the updates with a pod's spec.
	updates uint64
	// past is when forgotten pods had ended, for two sweeps: one that begins anew
	// must not take what is left of its last life for the beginning of this one.
	past map[types.UID]life
	// run is the context of Run, nil while it does not run, and stopped says
	// that it has returned.
	run     context.Context
	stopped bool
	turns   sync.WaitGroup // the goroutines of workers; added to only while open
}

// worker is one pod. It has a goroutine only while it works.
type worker struct {
	state

	uid  types.UID
	name string // the full name of a static pod, else empty
	// The next turn needs a status that was taken at since or later, which is 1 ns
	// after the end of the last turn. lastErr is the error of the last turn.
	since   time.Time
	lastErr error

	deadline *lifecycle.Deadline // nil before the first terminating turn
	resumed  bool                // it was being deleted when it became known
	follows  atomic.Bool         // whoever takes the turn under way follows the deadline

	working bool               // it has a goroutine
	cancel  context.CancelFunc // cancels the turn under way, nil if there is none
	due     time.Time          // when it is to be looked at again
	place   int                // in the queue
	desired uint64             // the last sweep that wanted it
	updated uint64             // its last update with a spec, as Workers counts them

	moves   []movement // that the observer is still to be told of
	telling bool       // somebody is at it
}

// movement is one step of a pod to another phase.
type movement struct {
	pod   *corev1.Pod
	phase Phase
}

// life is kept of a forgotten pod: its worker's since, for the case that the pod comes
// back, and the sweep in or after which it was forgotten.
type life struct {
	since time.Time
	sweep uint64
}

// New returns Workers that know no pod and do nothing until [Workers.Run]. The
// error reports every problem with cfg.
func New(cfg Config) (*Workers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podworker: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Workers{
		cfg:   cfg,
		loop:  loop.New(cfg.Clock),
		pods:  map[types.UID]*worker{},
		past:  map[types.UID]life{},
		gate:  gate{lines: map[string][]types.UID{}},
		queue: newQueue(),
	}, nil
}

// Run works on pods until ctx is done, then cancels all turns, waits for them,
// and returns nil. Who waits in [Workers.KillPod] gets [ErrStopped]. A second Run
// beside the first returns [ErrRunning]; one after it goes on where that ended.
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
	w.turns.Wait() // nobody adds to it any more: ctx is done, and start looks at that
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = nil
	for _, p := range w.pods {
		w.report(p.waiters, ErrStopped)
		p.waiters = nil
	}
	return err
}

// idle is how long the loop sleeps when no pod is due. It is woken before that.
const idle = time.Hour

// startDue starts the workers that are due and returns when the next one is.
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
		p.wanted = true
		w.start(p)
	}
	w.wake = now.Add(idle)
	return idle
}

// schedule has p looked at again at the given time, unless something wants it
// before.
func (w *Workers) schedule(p *worker, due time.Time) {
	w.queue.set(p, due)
	if due.Before(w.wake) {
		w.wake = due
		w.loop.Trigger()
	}
}

// start runs p's next turn if one is due and none is under way.
func (w *Workers) start(p *worker) {
	if !w.open() || p.working || !p.wanted || w.blocked(p) {
		return
	}
	p.working = true
	w.turns.Go(func() { w.work(p) })
}

// open says whether turns may begin. A cancelled Run is closed before it returns:
// turns that begin then would fail at once, again and again.
func (w *Workers) open() bool { return w.run != nil && w.run.Err() == nil }

// blocked says whether p must wait for another static pod of its name. What ends
// never waits.
func (w *Workers) blocked(p *worker) bool {
	return p.phase == Syncing && p.name != "" && w.gate.behind(p.name, p.uid)
}

// UpdatePod tells the pod's worker what is new. It never waits for work: the
// newest update counts, and those before it that no turn has taken yet are
// passed over, but what ends a pod ends it for good.
//
// An update that makes no sense (no pod, no UID, an unknown type), one for a pod
// that has ended and a Sync of a pod that is not known are ignored: see
// [Observer.Ignored].
func (w *Workers) UpdatePod(u Update) { w.update(u, nil) }

// runs reports whether anything of the pod may run, which it may where the runtime
// could not say or was not asked yet.
func (w *Workers) runs(uid types.UID) bool {
	if !w.cfg.Cache.Known(uid) {
		return true
	}
	s, err := w.cfg.Cache.Get(uid)
	return err != nil || s != nil && s.Running()
}

// update hands u to its worker and sees to what follows. Done, if not nil, is
// told when the pod has ended.
func (w *Workers) update(u Update, done chan<- error) {
	uid := u.uid()
	runs := w.mayRun(u)

	w.mu.Lock()
	p, known := w.pods[uid]
	if !known {
		p = &worker{uid: uid, since: w.past[uid].since}
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
	next, e := decide(p.state, u, done, facts{known: known, runs: runs, behind: p.name != "" && w.gate.behind(p.name, uid)})
	p.state = next
	if e.ignored == "" {
		if !known {
			w.add(p)
		}
		if described != (p.pod != nil) {
			w.known = nil
		}
		w.follow(p, before, e)
	} else {
		w.report(e.report, nil)
	}
	untold := len(p.moves) > 0
	w.mu.Unlock()

	if e.ignored != "" {
		w.cfg.Observer.Ignored(u, e.ignored)
	}
	if untold {
		w.tell(p)
	}
}

// mayRun says whether the runtime shows something of the pod that may run. It is
// asked only where that counts: about a pod that ended before this agent began, a
// static one that may never have started, and one that is killed. A pod without a
// spec came from there.
func (w *Workers) mayRun(u Update) bool {
	if u.Pod == nil {
		return true
	}
	counts := u.Type == Kill || podspec.IsTerminal(u.Pod.Status.Phase) || podspec.IsStatic(u.Pod)
	return counts && w.runs(u.Pod.UID)
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

// add makes p known.
func (w *Workers) add(p *worker) {
	w.pods[p.uid], w.known = p, nil
	if p.name != "" && p.phase < Terminated {
		w.gate.enter(p.name, p.uid)
	}
}

// follow does what a decision about p asks for beside the new state.
func (w *Workers) follow(p *worker, before Phase, e effects) {
	if p.phase != before {
		w.moved(p)
	}
	if w.stopped {
		w.report(p.waiters, ErrStopped)
		p.waiters = nil
	}
	w.report(e.report, nil)
	if e.cancel && p.cancel != nil && !p.follows.Load() {
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

// moved notes that p has reached its phase.
func (w *Workers) moved(p *worker) {
	w.known = nil
	p.moves = append(p.moves, movement{p.pod, p.phase})
}

// tell has the observer told of what was noted. Without a lock held, only one
// teller at a time keeps the order.
func (w *Workers) tell(p *worker) {
	w.mu.Lock()
	for !p.telling && len(p.moves) > 0 {
		m := p.moves[0]
		p.moves, p.telling = p.moves[1:], true
		w.mu.Unlock()
		w.cfg.Observer.Moved(p.uid, m.pod, m.phase)
		w.mu.Lock()
		p.telling = false
	}
	w.mu.Unlock()
}

// leave takes p out of the queue and its place in line, and lets the next one in.
func (w *Workers) leave(p *worker) {
	w.queue.Remove(p)
	if p.name == "" {
		return
	}
	w.gate.leave(p.name, p.uid)
	if first, ok := w.gate.first(p.name); ok {
		w.start(w.pods[first])
	}
}

// report tells everybody who waits how it ended. Each channel has room for that.
func (w *Workers) report(waiters []chan<- error, err error) {
	for _, c := range waiters {
		c <- err
	}
}
