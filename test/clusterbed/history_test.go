//go:build chaos

package clusterbed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
)

// history has all containers and pods of a test, from the events of the container runtime and from a
// watch of the API server. Both are followed while the runtime and the API server are killed and
// started.
type history struct {
	namespace string
	// exits has the exit codes with which the containers of pods end without a fault, by name of the
	// pod.
	exits map[string]int32

	client  *http.Client
	audited int64 // size of the audit log when the test began
	stop    func()

	mu         sync.Mutex
	containers map[string]*container // by ID
	pods       map[types.UID]*pod
	broken     []string // invariants that the watch has shown to be broken
	// othersDelete means that the control plane deletes pods, whether or not their containers run.
	othersDelete bool
	// restored means that the API server has an older state than the node, so that a container which is
	// unknown to the API server counts as another restart.
	restored bool
}

// container is a container of the runtime. Times are zero if they have not happened or are unknown.
type container struct {
	runtime, id   string
	pod           types.UID
	podName, name string
	attempt       uint32
	started       time.Time
	finished      time.Time
	exitCode      int32
	reason        string
	lost          bool // it was removed while no events arrived
}

// pod is a pod of the API server.
type pod struct {
	name  string
	phase corev1.PodPhase
	gone  time.Time // when the watch has reported the deletion
}

// follow records the pods of a test, until check is called or the test ends. exits has the exit codes
// with which containers end without a fault, by name of the pod.
func follow(t *testing.T, exits map[string]int32) *history {
	t.Helper()
	info, err := os.Stat(auditLog())
	require.NoError(t, err)
	h := &history{
		namespace: namespace(t), exits: exits, audited: info.Size(), client: &http.Client{Transport: transportOf(t, "admin")},
		containers: map[string]*container{}, pods: map[types.UID]*pod{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	h.stop = func() { cancel(); running.Wait() }
	t.Cleanup(h.stop)
	running.Go(func() { repeat(ctx, h.watchPods) })
	running.Go(func() {
		repeat(ctx, func(ctx context.Context) error { return h.followRuntime(ctx, bed.env["CRI_SOCKET"]) })
	})
	return h
}

// followSecond also records the containers of a second runtime.
func (h *history) followSecond(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	first := h.stop
	h.stop = func() { cancel(); running.Wait(); first() }
	t.Cleanup(h.stop)
	running.Go(func() { repeat(ctx, func(ctx context.Context) error { return h.followRuntime(ctx, socket) }) })
}

// repeat calls f again and again until ctx is done, because a stream ends when its server is killed.
func repeat(ctx context.Context, f func(context.Context) error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = f(ctx) // the server was killed, or ctx is done
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// watchPods records the pods of the API server until the watch ends.
func (h *history) watchPods(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server("/api/v1/namespaces/"+h.namespace+"/pods?watch=1"), nil)
	if err != nil {
		return err
	}
	answer, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	for events := json.NewDecoder(answer.Body); ; {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return errors.New("the watch has ended")
		}
		h.seePod(&event.Object, event.Type == "DELETED")
	}
}

// seePod records the state of a pod, and checks that its phase does not go back.
func (h *history) seePod(object *corev1.Pod, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pods[object.UID]
	if p == nil {
		p = &pod{name: object.Name}
		h.pods[object.UID] = p
	}
	if was, is := p.phase, object.Status.Phase; was != is && (isFinal(was) || was == corev1.PodRunning && is == corev1.PodPending) {
		h.broken = append(h.broken, fmt.Sprintf("the phase of pod %s (%s) goes from %s back to %s", object.Name, object.UID, was, is))
	}
	p.phase = object.Status.Phase
	if !deleted {
		return
	}
	p.gone = time.Now()
	if p.phase == corev1.PodRunning && !h.othersDelete {
		h.broken = append(h.broken, fmt.Sprintf("pod %s (%s) was deleted in phase Running: its final status was not delivered", object.Name, object.UID))
	}
}

func isFinal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// followRuntime records the containers of a runtime until the stream of its events ends.
func (h *history) followRuntime(ctx context.Context, socket string) error {
	client, err := criclient.New(criclient.Config{Endpoint: "unix://" + socket})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended := make(chan *runtimeapi.ContainerEventResponse), make(chan error, 1)
	opened := make(chan struct{})
	go func() {
		ended <- client.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	select {
	case <-opened:
	case err := <-ended:
		return err
	}
	listed := make(chan error, 1)
	go func() { listed <- h.list(ctx, client, socket) }() // at the same time, so that no other client of the events waits
	for {
		select {
		case event := <-events:
			h.seeEvent(socket, event)
		case err := <-listed:
			if err != nil {
				cancel()
				return errors.Join(err, <-ended)
			}
		case err := <-ended:
			return err
		}
	}
}

// list records all containers of a runtime, and marks the containers that have been removed.
func (h *history) list(ctx context.Context, client *criclient.Client, socket string) error {
	began := time.Now()
	all, err := client.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.namespace": h.namespace}})
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, c := range all {
		ids[c.Id] = true
		answer, err := client.ContainerStatus(ctx, c.Id, false)
		if err != nil {
			continue // removed after the list; an event reports it
		}
		h.seeContainer(socket, answer.Status)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.containers {
		if c.runtime == socket && !ids[id] && c.finished.IsZero() && c.started.Before(began) {
			c.lost = true
		}
	}
	return nil
}

// seeEvent records the containers in an event.
func (h *history) seeEvent(socket string, event *runtimeapi.ContainerEventResponse) {
	for _, status := range event.ContainersStatuses {
		h.seeContainer(socket, status)
	}
}

// seeContainer records the state of a container.
func (h *history) seeContainer(socket string, status *runtimeapi.ContainerStatus) {
	labels := status.Labels
	if labels["io.kubernetes.pod.namespace"] != h.namespace {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.containers[status.Id]
	if c == nil {
		c = &container{
			runtime: socket, id: status.Id, pod: types.UID(labels["io.kubernetes.pod.uid"]), podName: labels["io.kubernetes.pod.name"],
			name: status.Metadata.Name, attempt: status.Metadata.Attempt,
		}
		h.containers[status.Id] = c
	}
	if status.StartedAt > 0 {
		c.started = time.Unix(0, status.StartedAt)
	}
	if status.FinishedAt > 0 {
		c.finished, c.exitCode, c.reason = time.Unix(0, status.FinishedAt), status.ExitCode, status.Reason
	}
}

// letOthersDelete permits that the control plane deletes pods whose containers run.
func (h *history) letOthersDelete() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.othersDelete = true
}

// forget removes everything that was recorded of pods and of finished containers, because the API
// server has an older state now.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restored = true
	clear(h.pods)
	maps.DeleteFunc(h.containers, func(_ string, c *container) bool { return !c.finished.IsZero() })
}

// of returns the containers of a pod with this name, oldest first.
func (h *history) of(name string) (found []container) {
	for _, c := range h.all() {
		if c.podName == name {
			found = append(found, c)
		}
	}
	return found
}

// all returns the containers in the order in which they were started.
func (h *history) all() []container {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]container, 0, len(h.containers))
	for _, c := range h.containers {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b container) int { return a.started.Compare(b.started) })
	return all
}

func (c container) String() string {
	return fmt.Sprintf("%s/%s attempt %d (%.8s of pod %s: started %s, finished %s, exit code %d, %s)",
		c.podName, c.name, c.attempt, c.id, c.pod, c.started.Format(clockFormat), c.finished.Format(clockFormat), c.exitCode, c.reason)
}

const clockFormat = "15:04:05.000"
