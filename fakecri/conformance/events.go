package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventChecks returns the checks of events. They run alone, because all streams of
// containerd 1.7 share one channel of events. If two checks ran at the same time, each
// event would reach only one of them.
func eventChecks() []check {
	return []check{
		{name: "events/order", run: checkEventOrder, alone: true},
		{name: "events/pod-status", run: checkEventContent, alone: true},
	}
}

// watch reads an event stream.
type watch struct {
	p    *probe
	done chan struct{}

	mu   sync.Mutex
	seen []*runtimeapi.ContainerEventResponse
	err  error
}

// watch subscribes to events, and returns when the stream delivers events. A subscription has
// no response, so watch creates pods until an event arrives. It skips the check if the
// runtime has no event stream, because pleg does not require a stream.
func (p *probe) watch() *watch {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	stream, err := p.rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		p.optional(err, "pleg: cannot subscribe to events")
	}
	w := &watch{p: p, done: make(chan struct{})}
	p.Cleanup(func() {
		cancel()
		<-w.done
	})
	go func() {
		defer close(w.done)
		for {
			e, err := stream.Recv()
			w.mu.Lock()
			if err != nil {
				w.err = err
				w.mu.Unlock()
				return
			}
			w.seen = append(w.seen, e)
			w.mu.Unlock()
		}
	}()
	p.until("pleg: no event is sent for a new pod", func() (bool, string) {
		p.unlessUnimplemented(w.broken())
		pod := p.runPod()
		p.removePod(pod.id)
		return len(w.of(pod.id)) > 0, w.String()
	})
	return w
}

// broken returns the error that ended the stream, or nil while the stream is open.
func (w *watch) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d events, %v", len(w.seen), w.err)
}

// of(id) returns the events about one container or sandbox that have arrived so far.
func (w *watch) of(id string) []*runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.seen), func(e *runtimeapi.ContainerEventResponse) bool { return e.GetContainerId() != id })
}

// await waits for an event of a kind about the object with the given id. It returns all
// events about that object up to that event.
func (w *watch) await(id string, kind runtimeapi.ContainerEventType) []*runtimeapi.ContainerEventResponse {
	w.p.Helper()
	var seen []*runtimeapi.ContainerEventResponse
	w.p.until("pleg: an event is never sent", func() (bool, string) {
		seen = w.of(id)
		n := slices.Index(kinds(seen), kind) + 1
		saw := kinds(seen)
		seen = seen[:n]
		return n > 0, fmt.Sprintf("%v, waiting for %v; %v", saw, kind, w)
	})
	return seen
}

func kinds(events []*runtimeapi.ContainerEventResponse) (all []runtimeapi.ContainerEventType) {
	for _, e := range events {
		all = append(all, e.GetContainerEventType())
	}
	return all
}

// life returns the events of each container. The checks expect the same events for sandboxes,
// except the last event: CRI-O sends no event when a sandbox is removed. pleg does not need
// this event, because the agent that removes a sandbox requests a relist.
func life() []runtimeapi.ContainerEventType {
	return []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
}

func checkEventOrder(p *probe) {
	w := p.watch()
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	p.stop(id, p.CallTimeout)
	p.ok(p.tryRemove(id), "containergc: cannot remove a container")
	p.stopPod(pod.id)
	p.removePod(pod.id)
	for _, of := range []struct {
		what, id string
		last     runtimeapi.ContainerEventType
	}{
		{"container", id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT},
		{"sandbox", pod.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT},
	} {
		seen := w.await(of.id, of.last)
		want := life()[:slices.Index(life(), of.last)+1]
		p.must(slices.Equal(kinds(seen), want), "pleg: events are sent in the wrong order, or twice", "%s: %v", of.what, kinds(seen))
		ordered := slices.IsSortedFunc(seen, func(a, b *runtimeapi.ContainerEventResponse) int {
			return int(a.GetCreatedAt() - b.GetCreatedAt())
		})
		p.must(ordered, "pleg: mistakes old events for new ones", "%s: %v", of.what, seen)
	}
}

func checkEventContent(p *probe) {
	w := p.watch()
	pod := p.runPod()
	id := p.launch(pod, "app", p.Failer)
	seen := w.await(id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	for _, e := range seen {
		p.must(e.GetPodSandboxStatus().GetId() == pod.id, "pleg: cannot find the pod of an event", "%v", e)
		p.must(len(e.GetContainersStatuses()) == 1, "pleg: an event lacks the status of a container", "%v", e)
		p.closeTo(p.clock.Now(), e.GetCreatedAt())
	}
	last := seen[len(seen)-1].GetContainersStatuses()[0]
	p.must(exited(last) && last.GetExitCode() == p.Failer.ExitCode, "pleg: the event of an exit shows a running container", "%v", last)
}
