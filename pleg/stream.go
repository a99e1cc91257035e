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

// EventSource is the part of a container runtime that streams events, a subset of
// cri.RuntimeService. The call sends events to the channel until its context is done or the
// stream breaks, and then returns. When the stream is open, it calls opened, whose argument
// may be nil. The generator reads the channel until the call returns.
type EventSource interface {
	GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
		opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
}

const (
	// stoppedDelay is how long Run holds back the hint of a stopped container, so that one
	// relist serves all hints of the pod. A terminating pod causes about a dozen events
	// within a few milliseconds.
	stoppedDelay = 5 * time.Millisecond
	// otherDelay is how long Run holds back all other hints. Creations, starts and removals
	// are nearly always the agent's own work, and the agent requests a relist of the pod
	// when the work is done. After that relist, the changes of most of these hints are
	// already listed.
	otherDelay = time.Second
	// resyncDelay is the time from the opening of a stream to a global relist. That relist
	// finds the changes that occurred while no stream was open. The events that the runtime
	// has buffered arrive during the delay, so that one relist serves all of them.
	resyncDelay = 100 * time.Millisecond
	// distrustPeriod is how long the generator does not rely on the stream after a missed
	// hint.
	distrustPeriod = 10 * time.Minute
	// requested is the kind of a hint that is a request of the agent.
	requested runtimeapi.ContainerEventType = -1
	// firstReopen and maxReopen are the first and the longest back-off before the generator
	// opens a broken stream again. The back-off doubles with each failure. The actual wait
	// is shorter by a random part, at most half of the back-off.
	firstReopen = 100 * time.Millisecond
	maxReopen   = 30 * time.Second
)

// errStreamEnded is the error of a stream that ended without an error.
var errStreamEnded = errors.New("the event stream ended without an error")

// stream is the state of the open event stream.
type stream struct {
	// resync is when a global relist is due because the stream was opened.
	resync time.Time
	// proven means that the stream has sent an event. With containerd 1.7 an open stream
	// may receive no events: all streams share one channel, and a stream whose client has
	// disconnected still receives one event before it ends.
	proven bool
	// synced means that a global relist that began at resync or later has succeeded. The
	// stream must announce all later changes.
	synced bool
	// unannounced contains the pods in which the last global relist found a change without
	// a hint. The hint may still arrive, so it counts as missed only if it has not arrived
	// before the next global relist.
	unannounced map[types.UID]bool
}

// hint is the content of an event: a container or sandbox of a pod was created, started,
// stopped or deleted. The pod is empty if the event does not name it.
type hint struct {
	pod  types.UID
	id   string
	kind runtimeapi.ContainerEventType
}

// delay returns how long Run holds back the hint.
func (h hint) delay() time.Duration {
	switch h.kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return otherDelay
	default: // stopped, or a kind that this build does not know
		return stoppedDelay
	}
}

// isUnseen reports whether the change of the hint is still missing from the newest listing.
// If the listing contains the change, the hint needs no other list, because each change has
// its own event. The order and the times of events do not matter. The caller holds step.
func (g *Generator) isUnseen(h hint) bool {
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

// reopenAfter returns the back-off after a number of consecutive failures. random is in [0,
// 1).
func reopenAfter(failures int, random float64) time.Duration {
	wait := backoff.After(failures, firstReopen, maxReopen)
	return wait - time.Duration(random*float64(wait/2))
}

// podOf returns the pod of an event. The result ours is false if the sandbox in the event lacks
// one of the labels. The UID is empty if the event does not name the pod: runtimes send only the
// container ID if the sandbox no longer exists.
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

// readEvents reads the event stream until ctx is done, and opens the stream again whenever
// it breaks.
func (g *Generator) readEvents(ctx context.Context) {
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
		if failures == 0 { // later failures are not logged
			g.logStreamEnd(ctx, err)
		}
		timer := g.cfg.Clock.NewTimer(reopenAfter(failures, g.cfg.Random()))
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// logStreamEnd logs that the event stream has ended, or that the runtime does not implement
// the stream.
func (g *Generator) logStreamEnd(ctx context.Context, err error) {
	if grpcstatus.Code(err) == codes.Unimplemented {
		g.cfg.Logger.InfoContext(ctx, "container runtime does not support the event stream, will relist all pods every period", "period", g.cfg.Period)
		return
	}
	g.cfg.Logger.WarnContext(ctx, "container event stream ended, will reopen it and relist all pods every period until then", "period", g.cfg.Period, "err", err)
}

// readStream reads events until the stream ends, and returns the reason.
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
			g.recordEvent(e)
		case err := <-done: // do not return before, even if ctx is done: the client may still send events
			return cmp.Or(err, errStreamEnded)
		}
	}
}

// streamOpened records the open stream and requests a global relist after resyncDelay.
func (g *Generator) streamOpened() {
	resync := g.cfg.Clock.Now().Add(resyncDelay)
	g.locked(func() {
		if g.stream == nil {
			g.stream, g.pausedUntil = &stream{resync: resync}, resync
			g.opened++
		}
	})
	g.cfg.Observer.StreamOpened()
	g.loop.Trigger()
}

// recordEvent records the hint of an event. It ignores the states in the event, which may
// be minutes old.
func (g *Generator) recordEvent(e *runtimeapi.ContainerEventResponse) {
	uid, ours := podOf(e, g.cfg.LabelSelector)
	now := g.cfg.Clock.Now()
	g.locked(func() {
		if g.stats.Hints++; ours {
			g.recordHint(hint{uid, e.GetContainerId(), e.GetContainerEventType()}, now)
		}
	})
	if !ours {
		return
	}
	age := time.Duration(0)
	if made := e.GetCreatedAt(); made > 0 {
		age = max(0, now.Sub(time.Unix(0, made)))
	}
	g.cfg.Observer.HintReceived(age)
	g.loop.Trigger()
}

// recordHint records a hint. An event that does not name its pod may concern any pod, so
// recordHint requests a global relist within Period. But it records a deletion without a
// pod as a hint, because the newest listing may already contain the deletion. The caller
// holds mu.
func (g *Generator) recordHint(h hint, now time.Time) {
	if s := g.stream; s != nil {
		s.proven = true
		if delete(s.unannounced, h.pod); h.pod == "" {
			clear(s.unannounced)
		}
	}
	if h.pod == "" && h.kind != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		g.dueSoon = true
	} else if _, waits := g.hints[h]; !waits {
		g.hints[h] = now.Add(h.delay())
	}
}
