package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventChecks run alone: in containerd 1.7 all streams share one channel of events,
// so that two checks would take them from each other.
func eventChecks() []check {
	return []check{
		{name: "events/tell-a-life-in-order", run: checkEventOrder, alone: true},
		{name: "events/carry-the-pod", run: checkEventContent, alone: true},
	}
}

// watch reads the event stream from now on.
type watch struct {
	p    *probe
	done chan struct{}

	mu   sync.Mutex
	seen []*runtimeapi.ContainerEventResponse
	err  error
}

// watch returns when the stream is known to deliver: a subscription has no
// answer of its own, so a pod is made to see something happen. It skips the check
// if the runtime has no stream, which pleg can do without.
func (p *probe) watch() *watch {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	stream, err := p.rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		p.optional(err, "pleg: there are no events")
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
	p.until("pleg: nothing is told of a pod that is made", func() (bool, string) {
		p.unlessUnimplemented(w.broken())
		pod := p.runPod()
		p.removePod(pod.id)
		return len(w.of(pod.id)) > 0, w.String()
	})
	return w
}

// broken returns why the stream has ended, nil while it has not.
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

// of returns the events of one container or sandbox so far.
func (w *watch) of(id string) []*runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.seen), func(e *runtimeapi.ContainerEventResponse) bool { return e.GetContainerId() != id })
}

// await waits for an event of a kind and returns all of that id up to it.
func (w *watch) await(id string, kind runtimeapi.ContainerEventType) []*runtimeapi.ContainerEventResponse {
	w.p.Helper()
	var seen []*runtimeapi.ContainerEventResponse
	w.p.until("pleg: an event never comes", func() (bool, string) {
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

// life is what is told of each container, and of each sandbox as well until it is
// removed: CRI-O sends no event of that, and pleg needs none, since the agent that
// removes a sandbox asks for a relist.
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
	p.ok(p.tryRemove(id), "containergc: a container cannot be removed")
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
		p.must(slices.Equal(kinds(seen), want), "pleg: a life is told in the wrong order, or twice", "%s: %v", of.what, kinds(seen))
		ordered := slices.IsSortedFunc(seen, func(a, b *runtimeapi.ContainerEventResponse) int {
			return int(a.GetCreatedAt() - b.GetCreatedAt())
		})
		p.must(ordered, "pleg: takes old news for new", "%s: %v", of.what, seen)
	}
}

func checkEventContent(p *probe) {
	w := p.watch()
	pod := p.runPod()
	id := p.launch(pod, "app", p.Failer)
	seen := w.await(id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	for _, e := range seen {
		p.must(e.GetPodSandboxStatus().GetId() == pod.id, "pleg: cannot tell whose event it is", "%v", e)
		p.must(len(e.GetContainersStatuses()) == 1, "pleg: an event misses a part of its pod", "%v", e)
		p.closeTo(p.clock.Now(), e.GetCreatedAt())
	}
	last := seen[len(seen)-1].GetContainersStatuses()[0]
	p.must(exited(last) && last.GetExitCode() == p.Failer.ExitCode, "pleg: an event that tells of an end shows a container that runs", "%v", last)
}
