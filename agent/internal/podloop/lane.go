package podloop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
)

// handlerDeadline is how long an admission handler may take. A later answer is a refusal.
const handlerDeadline = 30 * time.Second

// laneConfig configures a lane. All fields are required.
type laneConfig struct {
	// handlers are asked in their order, allocators after them.
	handlers   []lifecycle.NamedHandler
	allocators []resources.Allocator
	// seen returns the pod as handlers see it.
	seen func(*corev1.Pod) *corev1.Pod
	// runs reports whether something of a pod runs.
	runs func(types.UID) bool
	// answered takes an answer, and idle is called when there is nothing to do.
	answered func(uid types.UID, version uint64, result lifecycle.PodAdmitResult)
	idle     func()
	observer lifecycle.AdmitObserver
	clock    clock.PassiveClock
}

// lane asks admission, one pod after another, and returns what pods had. It shares no lock with
// anything else: a handler that is slow, or a preemption that waits for its victim, holds up
// other questions and releases, and nothing besides.
//
// It keeps the list of the pods that hold something of the node: a pod is in it from the answer
// that admits it to its release. So a question costs as much as there are admitted pods, however
// many are offered.
type lane struct {
	cfg   laneConfig
	chain *lifecycle.Chain
	wake  chan struct{} // capacity 1: there is something to do

	// active are the pods that hold something of the node. Granted are the allocators that have
	// admitted the pod of the question under way. Both belong to the lane's goroutine, as does
	// freed: the question under way has ended other pods.
	active  []*corev1.Pod
	granted []resources.Allocator
	freed   bool

	mu       sync.Mutex
	queue    []request
	held     []request // questions that wait for the end of a shutdown
	draining bool
	call     call
	busy     bool
}

// request is a question, or a release.
type request struct {
	uid     types.UID
	release bool
	// pod, version and edit are of a question.
	pod     *corev1.Pod
	version uint64
	edit    bool
}

// call is a call of a handler or an allocator that is under way.
type call struct {
	what  string // empty: none
	since time.Time
}

func newLane(cfg laneConfig) (*lane, error) {
	l := &lane{cfg: cfg, wake: make(chan struct{}, 1)}
	var chain lifecycle.ChainConfig
	for _, h := range cfg.handlers {
		chain.Handlers = append(chain.Handlers, lifecycle.NamedHandler{Name: h.Name, Handler: guarded{lane: l, name: h.Name, handler: h.Handler}})
	}
	for _, a := range cfg.allocators {
		chain.Handlers = append(chain.Handlers, lifecycle.NamedHandler{Name: a.Name(), Handler: guarded{lane: l, name: a.Name(), handler: a, allocator: a}})
	}
	chain.Observer, chain.Clock = cfg.observer, cfg.clock
	var err error
	if l.chain, err = lifecycle.NewChain(chain); err != nil {
		return nil, fmt.Errorf("fields Admission and Allocators: %w", err)
	}
	return l, nil
}

// ask asks about a pod, or about an edit of an admitted one. It never waits.
func (l *lane) ask(pod *corev1.Pod, version uint64, edit bool) {
	l.add(request{uid: pod.UID, pod: pod, version: version, edit: edit})
}

// release returns what a pod had. It never waits. It may be called for a pod that has nothing.
func (l *lane) release(uid types.UID) { l.add(request{uid: uid, release: true}) }

func (l *lane) add(r request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	l.mu.Unlock()
	l.signal()
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

// drain has the lane refuse API pods, because the node is shutting down, and keep questions
// about static pods and edits until resume.
func (l *lane) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
}

// resume ends what drain has begun.
func (l *lane) resume() {
	l.mu.Lock()
	l.draining = false
	l.queue = append(l.queue, l.held...)
	l.held = nil
	l.mu.Unlock()
	l.signal()
}

// isIdle reports whether there is nothing to do.
func (l *lane) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy && len(l.queue) == 0
}

// late returns what the lane waits for if that has ignored its deadline, and since when.
func (l *lane) late() (what string, since time.Time, isLate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isLate = l.call.what != "" && l.cfg.clock.Since(l.call.since) > handlerDeadline
	return l.call.what, l.call.since, isLate
}

// run works until ctx is done. Questions about pods that run come first: a pod that an earlier
// agent started does not lose its place to a new one.
func (l *lane) run(ctx context.Context) {
	l.mu.Lock()
	slices.SortStableFunc(l.queue, func(a, b request) int { return l.rank(a.uid) - l.rank(b.uid) })
	l.mu.Unlock()
	for {
		r, ok := l.next()
		if !ok {
			l.cfg.idle()
			select {
			case <-l.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if r.release {
			l.giveBack(r.uid)
		} else {
			l.question(ctx, r)
		}
	}
}

func (l *lane) rank(uid types.UID) int {
	if l.cfg.runs(uid) {
		return 0
	}
	return 1
}

// next takes the first request. During a shutdown it sets questions aside.
func (l *lane) next() (request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		r := l.queue[0]
		l.queue = l.queue[1:]
		if r.release {
			l.held = slices.DeleteFunc(l.held, func(h request) bool { return h.uid == r.uid })
		} else if l.draining && (r.edit || podspec.IsStatic(r.pod)) {
			l.held = append(l.held, r)
			continue
		}
		l.busy = true
		return r, true
	}
	l.busy = false
	return request{}, false
}

// question asks about one pod and passes the answer on. A question that is cut short by the end
// of the lane has no answer: the pod is not refused.
func (l *lane) question(ctx context.Context, r request) {
	l.mu.Lock()
	draining := l.draining
	l.mu.Unlock()
	if draining {
		l.refuse(r, lifecycle.PodAdmitResult{Reason: podworker.ReasonNodeShutdown, Message: podworker.MessageNodeShutdown})
		return
	}
	l.granted, l.freed = nil, false
	result := l.chain.Admit(ctx, lifecycle.PodAdmitAttributes{
		Pod: l.cfg.seen(r.pod), OtherPods: l.others(r.uid), Operation: lifecycle.AddOperation,
	})
	switch {
	case ctx.Err() != nil:
	case result.Admit:
		l.admit(r)
		l.cfg.answered(r.uid, r.version, result)
	default:
		l.refuse(r, result)
	}
}

// admit makes the pod one that holds something of the node.
func (l *lane) admit(r request) {
	if i := l.index(r.uid); i >= 0 {
		l.active = slices.Clone(l.active) // handlers may still have the one before
		l.active[i] = l.cfg.seen(r.pod)
		return
	}
	l.active = append(l.active, l.cfg.seen(r.pod))
}

// refuse answers a question, and returns what allocators gave to the pod meanwhile. The running
// version of a pod whose edit is refused keeps its share.
func (l *lane) refuse(r request, result lifecycle.PodAdmitResult) {
	switch {
	case r.edit:
	case l.index(r.uid) >= 0: // an earlier question about the pod was answered well
		l.giveBack(r.uid)
	default:
		for _, a := range l.granted {
			l.calling(a.Name()+" (release)", func() { a.Release(r.uid) })
		}
	}
	l.cfg.answered(r.uid, r.version, result)
}

// giveBack returns what the pod has, if it has anything.
func (l *lane) giveBack(uid types.UID) {
	i := l.index(uid)
	if i < 0 {
		return
	}
	l.active = slices.Delete(slices.Clone(l.active), i, i+1)
	for _, a := range l.cfg.allocators {
		l.calling(a.Name()+" (release)", func() { a.Release(uid) })
	}
}

func (l *lane) index(uid types.UID) int {
	return slices.IndexFunc(l.active, func(p *corev1.Pod) bool { return p.UID == uid })
}

// others returns the pods that hold something of the node, without the given one.
func (l *lane) others(uid types.UID) []*corev1.Pod {
	i := l.index(uid)
	if i < 0 {
		return slices.Clip(l.active)
	}
	return slices.Delete(slices.Clone(l.active), i, i+1)
}

// giveBackNow carries out the releases that came meanwhile, so that the handlers that follow a
// preemption see what it has freed. A release stays behind a question about the same pod.
func (l *lane) giveBackNow(asked types.UID) {
	l.mu.Lock()
	var now []types.UID
	waits := map[types.UID]bool{asked: true}
	l.queue = slices.DeleteFunc(l.queue, func(r request) bool {
		if !r.release || waits[r.uid] {
			waits[r.uid] = true
			return false
		}
		now = append(now, r.uid)
		return true
	})
	l.mu.Unlock()
	for _, uid := range now {
		l.giveBack(uid)
	}
}

// calling records what the lane waits for.
func (l *lane) calling(what string, f func()) {
	l.setCall(call{what: what, since: l.cfg.clock.Now()})
	f()
	l.setCall(call{})
}

func (l *lane) setCall(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = c
}

// guarded is a handler with a deadline. The allocator is nil for one that is none.
type guarded struct {
	lane      *lane
	name      string
	handler   lifecycle.AdmitHandler
	allocator resources.Allocator
}

// Admit asks the handler. One that answers after its deadline has refused, whatever it answers.
func (g guarded) Admit(ctx context.Context, attrs lifecycle.PodAdmitAttributes) (result lifecycle.PodAdmitResult) {
	if g.lane.freed {
		g.lane.freed = false
		g.lane.giveBackNow(attrs.Pod.UID)
	}
	attrs.OtherPods = g.lane.others(attrs.Pod.UID)
	limited, cancel := context.WithTimeout(ctx, handlerDeadline)
	defer cancel()
	g.lane.calling(g.name, func() { result = g.handler.Admit(limited, attrs) })
	if result.Admit && g.allocator != nil {
		g.lane.granted = append(g.lane.granted, g.allocator)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return lifecycle.PodAdmitResult{
			Reason:  lifecycle.UnexpectedAdmissionError,
			Message: fmt.Sprintf("Admission handler %s did not answer within %v", g.name, handlerDeadline),
		}
	}
	return result
}
