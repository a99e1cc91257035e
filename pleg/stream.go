package pleg

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/backoff"
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
	// endDelay is how long the hint of an end waits for others that come with it: the
	// end of a pod is a dozen of events within a few milliseconds.
	endDelay = 5 * time.Millisecond
	// otherDelay is how long other hints wait. Creations, starts and removals are
	// nearly always the agent's own, and the agent relists the pod when it has done
	// all that it has to do: after that most of these hints are not news any more.
	otherDelay = time.Second
	// resyncDelay is the time from the opening of a stream to the global relist that
	// shows what was missed. The events that the runtime has kept come meanwhile, and
	// that relist serves them all.
	resyncDelay = 100 * time.Millisecond
	// doubt is how long the stream is not relied on after a missed hint.
	doubt = 10 * time.Minute
	// requested is the kind of a hint that is a request of the agent.
	requested runtimeapi.ContainerEventType = -1
	// A broken stream is opened again after this, doubled with each failure up to
	// the maximum, less a random part of up to a half.
	firstReopen = 100 * time.Millisecond
	maxReopen   = 30 * time.Second
)

// errStreamEnded stands for the reason of a stream that ended without any.
var errStreamEnded = errors.New("the stream has ended")

// stream is what the generator knows of the open stream of events.
type stream struct {
	// resync is when to relist everything because the stream has opened.
	resync time.Time
	// proven means that the stream has sent an event. A stream of containerd 1.7 may
	// stay silent although it is open: all streams share one channel there, and one
	// whose client has gone receives an event before it ends.
	proven bool
	// synced means that a relist which began after resync has succeeded. The stream has
	// to announce all changes since.
	synced bool
	// suspects are the pods with a change that the last relist found and no hint had
	// announced. The list may have been faster than the event, so that has time to
	// come until the next relist.
	suspects map[types.UID]bool
}

// hint is what an event reports: a container or sandbox of a pod was created, has
// started, has ended or was removed. The pod is empty if the event does not name it.
type hint struct {
	pod  types.UID
	id   string
	kind runtimeapi.ContainerEventType
}

// delay returns how long the hint may wait.
func (h hint) delay() time.Duration {
	switch h.kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return otherDelay
	default: // stopped, and what this build does not know
		return endDelay
	}
}

// isNews reports whether the newest listing does not show yet what the hint reports. If it
// shows that, another list would bring nothing: each change has an event of its own. The
// order and the times of events do not matter for that. The caller holds step.
func (g *Generator) isNews(h hint) bool {
	now := absent
	if i := slices.IndexFunc(g.listed, func(o object) bool { return o.id == h.id }); i >= 0 {
		now = g.listed[i].state
	}
	switch h.kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return now == absent
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return now != running
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return now != exited
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return now != absent || h.id == ""
	default:
		return true
	}
}

// reopenAfter returns how long to wait after a number of failures in a row, with a
// random number from 0 to 1.
func reopenAfter(failures int, random float64) time.Duration {
	wait := backoff.After(failures, firstReopen, maxReopen)
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
		err := g.readStream(ctx)
		g.locked(func() { g.stream = nil })
		g.loop.Trigger()
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
		timer := g.cfg.Clock.NewTimer(reopenAfter(failures, g.cfg.Random()))
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

// readStream takes hints until the stream ends, and returns why it did.
func (g *Generator) readStream(ctx context.Context) error {
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
			g.hear(e)
		case err := <-done: // only now: clients may send without regard to ctx
			return cmp.Or(err, errStreamEnded)
		}
	}
}

// streamOpened has everything relisted a little later.
func (g *Generator) streamOpened() {
	resync := g.cfg.Clock.Now().Add(resyncDelay)
	g.locked(func() {
		if g.stream == nil {
			g.stream, g.rest = &stream{resync: resync}, resync
			g.opened++
		}
	})
	g.cfg.Observer.StreamOpened()
	g.loop.Trigger()
}

// hear records the hint of an event. The statuses in the event are not used: they may
// be minutes old.
func (g *Generator) hear(e *runtimeapi.ContainerEventResponse) {
	uid, ours := podOf(e, g.cfg.LabelSelector)
	now := g.cfg.Clock.Now()
	g.locked(func() {
		if g.stats.Hints++; ours {
			g.addHint(hint{uid, e.GetContainerId(), e.GetContainerEventType()}, now)
		}
	})
	if !ours {
		return
	}
	age := time.Duration(0)
	if made := e.GetCreatedAt(); made > 0 {
		age = max(0, now.Sub(time.Unix(0, made)))
	}
	g.cfg.Observer.Hinted(age)
	g.loop.Trigger()
}

// addHint notes a hint. An event that does not name its pod may mean any pod, unless
// something was removed: that may be known already. The caller holds mu.
func (g *Generator) addHint(h hint, now time.Time) {
	if s := g.stream; s != nil {
		s.proven = true
		if delete(s.suspects, h.pod); h.pod == "" {
			clear(s.suspects)
		}
	}
	if h.pod == "" && h.kind != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		g.soon = true
	} else if _, waits := g.hints[h]; !waits {
		g.hints[h] = now.Add(h.delay())
	}
}
