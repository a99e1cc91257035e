package pleg_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

// Any CRI client can be used.
var (
	_ pleg.Runtime     = cri.RuntimeService(nil)
	_ pleg.EventSource = cri.RuntimeService(nil)
	_ pleg.Lister      = cri.RuntimeService(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	created  = runtimeapi.ContainerState_CONTAINER_CREATED
	runs     = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited   = runtimeapi.ContainerState_CONTAINER_EXITED
	lost     = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// node is a scripted runtime.
type node struct {
	mu         sync.Mutex
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	ips        map[string][]string // addresses by sandbox
	// listErr is the error of lists, statusErr the error of statuses, by id. hang
	// blocks calls, by id or "list", until the channel is closed or the call's
	// context is done.
	listErr   error
	statusErr map[string]error
	hang      map[string]chan struct{}
	empty     map[string]bool // IDs whose status response is empty
	asked     []string        // IDs of status calls
	lists     int
}

func newNode() *node {
	return &node{
		ips: map[string][]string{}, statusErr: map[string]error{},
		hang: map[string]chan struct{}{}, empty: map[string]bool{},
	}
}

func labelsOf(uid types.UID) map[string]string {
	return map[string]string{crilabels.PodUID: string(uid), crilabels.PodName: "n-" + string(uid), crilabels.PodNamespace: "ns"}
}

// sandbox adds a sandbox or changes its state.
func (n *node) sandbox(uid types.UID, id string, s runtimeapi.PodSandboxState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.sandboxes {
		if b.Id == id {
			b.State = s
			return
		}
	}
	n.sandboxes = append(n.sandboxes, &runtimeapi.PodSandbox{
		Id: id, State: s, Labels: labelsOf(uid),
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "n-" + string(uid), Namespace: "ns", Uid: string(uid), Attempt: uint32(len(n.sandboxes))},
	})
}

// container adds a container or changes its state.
func (n *node) container(uid types.UID, id string, s runtimeapi.ContainerState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.Id == id {
			c.State = s
			return
		}
	}
	n.containers = append(n.containers, &runtimeapi.Container{
		Id: id, State: s, Labels: labelsOf(uid), Metadata: &runtimeapi.ContainerMetadata{Name: id},
	})
}

func (n *node) remove(ids ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sandboxes = slices.DeleteFunc(n.sandboxes, func(b *runtimeapi.PodSandbox) bool { return slices.Contains(ids, b.GetId()) })
	n.containers = slices.DeleteFunc(n.containers, func(c *runtimeapi.Container) bool { return slices.Contains(ids, c.GetId()) })
}

// fail makes the status of id fail with err. If err is nil, the status succeeds
// again.
func (n *node) fail(id string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.statusErr[id] = err
}

func (n *node) failLists(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listErr = err
}

// block makes calls for key hang until the returned function is called.
func (n *node) block(key string) (unblock func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gate := make(chan struct{})
	n.hang[key] = gate
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.hang, key)
		close(gate)
	}
}

// takeAsked returns the IDs whose status was requested since the last call.
func (n *node) takeAsked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	slices.Sort(asked)
	return asked
}

// listed returns the number of list calls.
func (n *node) listed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lists
}

func (n *node) enter(ctx context.Context, key string) error {
	n.mu.Lock()
	gate := n.hang[key]
	n.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func copySandbox(b *runtimeapi.PodSandbox) *runtimeapi.PodSandbox {
	if b == nil {
		return nil
	}
	return &runtimeapi.PodSandbox{Id: b.Id, State: b.State, Labels: b.Labels, Metadata: b.Metadata, CreatedAt: b.CreatedAt}
}

func copyContainer(c *runtimeapi.Container) *runtimeapi.Container {
	if c == nil {
		return nil
	}
	return &runtimeapi.Container{Id: c.Id, State: c.State, Labels: c.Labels, Metadata: c.Metadata, PodSandboxId: c.PodSandboxId}
}

func (n *node) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := n.enter(ctx, "list"); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	var out []*runtimeapi.PodSandbox
	for _, b := range n.sandboxes {
		if matches(b.GetLabels(), f.GetLabelSelector()) {
			out = append(out, copySandbox(b))
		}
	}
	return out, n.listErr
}

func (n *node) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*runtimeapi.Container
	for _, c := range n.containers {
		if matches(c.GetLabels(), f.GetLabelSelector()) {
			out = append(out, copyContainer(c))
		}
	}
	return out, ctx.Err()
}

// answer is the common part of both status calls.
func (n *node) answer(ctx context.Context, id string) (empty bool, err error) {
	n.mu.Lock()
	n.asked = append(n.asked, id)
	err, empty = n.statusErr[id], n.empty[id]
	n.mu.Unlock()
	if cut := n.enter(ctx, id); cut != nil {
		return false, cut
	}
	return empty, err
}

func (n *node) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if empty, err := n.answer(ctx, id); err != nil || empty {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.sandboxes {
		if b.GetId() != id {
			continue
		}
		status := &runtimeapi.PodSandboxStatus{Id: id, State: b.State, Labels: b.Labels, Metadata: b.Metadata, CreatedAt: b.CreatedAt}
		for i, ip := range n.ips[id] {
			if i == 0 {
				status.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ip}
				continue
			}
			status.Network.AdditionalIps = append(status.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
		return &runtimeapi.PodSandboxStatusResponse{Status: status}, nil
	}
	return nil, grpcstatus.Error(codes.NotFound, "no such sandbox")
}

func (n *node) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if empty, err := n.answer(ctx, id); err != nil || empty {
		return &runtimeapi.ContainerStatusResponse{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.GetId() == id {
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: id, State: c.State, Labels: c.Labels, Metadata: c.Metadata,
			}}, nil
		}
	}
	return nil, grpcstatus.Error(codes.NotFound, "no such container")
}

// rig is a generator on a node, with its recorded events.
type rig struct {
	*pleg.Generator
	t     *testing.T
	node  *node
	cache *podcache.Cache

	mu     sync.Mutex
	events []string
	hidden []string // events that only the observer received
	result pleg.Result
	// onEvent is called by the handler.
	onEvent func(pleg.Event)
}

func newRig(t *testing.T, clk clock.Clock, change ...func(*pleg.Config)) *rig {
	t.Helper()
	r := &rig{t: t, node: newNode(), cache: podcache.New()}
	cfg := pleg.Config{Runtime: r.node, Cache: r.cache, Handler: r.handle, Clock: clk}
	cfg.Observer.RelistEnd = func(res pleg.Result, _ error) { r.result = res }
	cfg.Observer.Event = func(e pleg.Event) {
		if e.Type == pleg.ContainerChanged {
			r.hidden = append(r.hidden, fmt.Sprintf("%s %s %s", e.PodUID, e.Type, e.ContainerID))
		}
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	r.Generator, err = pleg.New(cfg)
	require.NoError(t, err)
	return r
}

func (r *rig) handle(_ context.Context, e pleg.Event) {
	text := fmt.Sprintf("%s %s", e.PodUID, e.Type)
	if e.ContainerID != "" {
		text += " " + e.ContainerID
	}
	r.mu.Lock()
	r.events = append(r.events, text)
	r.mu.Unlock()
	if r.onEvent != nil {
		r.onEvent(e)
	}
}

// take returns the events since the last call, sorted by pod.
func (r *rig) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	slices.SortStableFunc(events, func(a, b string) int { return int(a[0]) - int(b[0]) })
	return events
}

// relist relists and returns the events.
func (r *rig) relist() []string {
	r.t.Helper()
	_, err := r.Relist(r.t.Context())
	require.NoError(r.t, err)
	return r.take()
}
