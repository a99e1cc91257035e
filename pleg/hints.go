package pleg

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// EventSource is the part of a container runtime that streams events, a literal
// subset of cri.RuntimeService. The call sends to the channel until its context is
// done or the stream breaks, and calls back, with or without a client, when the
// stream is open. The channel is read until it returns.
type EventSource interface {
	GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
		opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
}

const (
	// hintDelay is how long a hint waits for others that come with it: the end of a
	// pod is a dozen of events within a few milliseconds.
	hintDelay = 5 * time.Millisecond
	// beginDelay is the same for what begins. That is nearly always the doing of the
	// agent itself, which asks for a relist when it has done all that it has to do in
	// the pod; until then the runtime has better to do than to list. Nobody waits for
	// what others begin: a kubelet sees it as late.
	beginDelay = time.Second
	// resyncDelay is the time from the opening of a stream to the global relist
	// that says what was missed. What the runtime had kept comes meanwhile, and
	// that relist serves it all.
	resyncDelay = 100 * time.Millisecond
	// restFactor is how long no single pod is relisted after some were, in multiples
	// of the time that took: a flood of hints or requests takes a quarter of one core
	// at most, and becomes one relist of all. maxRest is the longest, so that who asks
	// a slow runtime does not wait for several of its answers.
	restFactor = 3
	maxRest    = 100 * time.Millisecond
	// A broken stream is opened again after this, doubled with each failure up to
	// the maximum, less a random part of up to a half.
	firstReopen = 100 * time.Millisecond
	maxReopen   = 30 * time.Second
)

// errStreamEnded stands for the reason of a stream that ended without any.
var errStreamEnded = errors.New("the stream has ended")

// hints is what the events have asked for. It belongs to the generator's mu.
type hints struct {
	pods map[types.UID]struct{}
	// due is when the pods are to be relisted.
	due time.Time
	// resync is when to relist everything because a stream has opened, or zero.
	resync time.Time
	// vague says that an event did not name its pod.
	vague bool
}

// wait returns the time until the pods are to be relisted; ok says that there are any.
// A wait that is longer than any is over: the clock has stepped back.
func (h *hints) wait(now time.Time) (wait time.Duration, ok bool) {
	wait = h.due.Sub(now)
	if wait > beginDelay {
		wait = 0
	}
	return wait, len(h.pods) > 0
}

// add notes a hint of the pod, and reports whether it is to be served sooner than
// those before it.
func (h *hints) add(uid types.UID, due time.Time) (sooner bool) {
	sooner = len(h.pods) == 0 || due.Before(h.due)
	if sooner {
		h.due = due
	}
	h.pods[uid] = struct{}{}
	return sooner
}

// delayOf returns how long the hint of an event may wait. It is all that the type of
// an event is believed: a wrong one is a late hint.
func delayOf(e *runtimeapi.ContainerEventResponse) time.Duration {
	switch e.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return beginDelay
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return hintDelay
	default:
		return hintDelay
	}
}

// reopenAfter returns how long to wait after a number of failures in a row, with a
// random number from 0 to 1.
func reopenAfter(failures int, random float64) time.Duration {
	wait := min(firstReopen<<min(failures, 16), maxReopen)
	return wait - time.Duration(random*float64(wait/2))
}

// podOf returns the pod of an event. It is not ours if it lacks one of the labels;
// ours without a UID means that the event does not say: runtimes send no more than
// an id when the sandbox is gone.
func podOf(e *runtimeapi.ContainerEventResponse, labels map[string]string) (uid types.UID, ours bool) {
	if b := e.GetPodSandboxStatus(); b != nil {
		if !matches(b.GetLabels(), labels) {
			return "", false
		}
		uid = cmp.Or(crilabels.UID(b.GetLabels()), types.UID(b.GetMetadata().GetUid()))
	}
	for _, c := range e.GetContainersStatuses() {
		uid = cmp.Or(uid, crilabels.UID(c.GetLabels()))
	}
	return uid, true
}

// listen takes hints from the stream of events until ctx is done, and opens it
// again whenever it breaks.
func (g *Generator) listen(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := g.cfg.Clock.Now()
		err := g.stream(ctx)
		g.streamEnded()
		if ctx.Err() != nil {
			return
		}
		g.cfg.Observer.StreamEnded(err)
		if g.cfg.Clock.Since(began) >= maxReopen {
			failures = 0
		}
		if failures == 0 { // else it was said already
			g.logEnd(ctx, err)
		}
		timer := g.cfg.Clock.NewTimer(reopenAfter(failures, rand.Float64()))
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// logEnd logs that there is no stream of events. For some runtimes that is normal.
func (g *Generator) logEnd(ctx context.Context, err error) {
	if grpcstatus.Code(err) == codes.Unimplemented {
		g.cfg.Logger.InfoContext(ctx, "this runtime has no container event stream, relisting without it", "period", g.cfg.Period)
		return
	}
	g.cfg.Logger.WarnContext(ctx, "container event stream ended, relisting without it", "err", err)
}

// stream takes hints until the stream ends, and returns why it did.
func (g *Generator) stream(ctx context.Context) error {
	events := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	go func() {
		done <- g.cfg.Events.GetContainerEvents(ctx, events,
			func(runtimeapi.RuntimeService_GetContainerEventsClient) { g.streamOpened() })
	}()
	for {
		select {
		case e, open := <-events:
			if !open {
				events = nil
				continue
			}
			g.hint(e)
		case err := <-done: // only now: clients may send without regard to ctx
			return cmp.Or(err, errStreamEnded)
		}
	}
}

// streamOpened sets off a relist of everything a little later.
func (g *Generator) streamOpened() {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	if g.pace.open() {
		g.hints.resync = now.Add(resyncDelay)
		g.rest = g.hints.resync
	}
	g.mu.Unlock()
	g.cfg.Observer.StreamOpened()
	g.loop.Trigger()
}

func (g *Generator) streamEnded() {
	g.mu.Lock()
	g.pace.down()
	g.hints.resync = time.Time{}
	g.mu.Unlock()
	g.loop.Trigger()
}

// hint notes what an event asks for. What else it says is not believed: it may be
// minutes old.
func (g *Generator) hint(e *runtimeapi.ContainerEventResponse) {
	uid, ours := podOf(e, g.cfg.LabelSelector)
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	g.stats.Hints++
	sooner := false
	switch {
	case !ours:
	case uid == "":
		sooner = !g.hints.vague
		g.hints.vague, g.pace.soon = true, true
		g.pace.heardVaguely()
	default:
		sooner = g.hints.add(uid, now.Add(delayOf(e)))
		g.pace.heard(uid)
	}
	g.mu.Unlock()
	if ours {
		g.cfg.Observer.Hinted(age(e, now))
	}
	if sooner {
		g.loop.Trigger()
	}
}

// age is how long before now an event was made, by its own word.
func age(e *runtimeapi.ContainerEventResponse, now time.Time) time.Duration {
	if e.GetCreatedAt() <= 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, e.GetCreatedAt())))
}
