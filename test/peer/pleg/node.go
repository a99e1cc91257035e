package pleg

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A node is a container runtime whose objects are set by the changes of a world. It responds
// to the calls of a relist.
type node struct {
	cri.RuntimeService

	objects []Object // in order of creation
	// later is the changes that happen during a relist, fails is the list call that fails,
	// and turn is the rotation of lists.
	later []Change
	fails string
	turn  int
	// unfiltered is set if filters are ignored, labelled if all objects have the labels of an
	// agent that shares the runtime, and shared if other agents share it.
	unfiltered, labelled, shared bool

	calls chan struct{} // has capacity 1: guards the fields above
}

func newNode(w *World) *node {
	return &node{unfiltered: w.Unfiltered, labelled: w.Selector, calls: make(chan struct{}, 1)}
}

// selector is the label selector by which our Generator finds its objects in a shared
// runtime.
func selector() map[string]string { return map[string]string{"agent": "ours", "shared": ""} }

// foreign returns objects of other agents. They appear and disappear.
func (n *node) foreign() (b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
	box, container := Object{ID: "foreign-s", Pod: "p1", State: int32(n.turn % 2)}, Object{ID: "foreign-c", Pod: "p1", Name: "main", Sandbox: "foreign-s"}
	container.State = int32(1 + n.turn%2)
	b = &runtimeapi.PodSandbox{Id: box.ID, Metadata: box.sandboxMetadata(), State: runtimeapi.PodSandboxState(box.State), Labels: box.labels()}
	b.Labels["agent"], b.Labels["shared"] = "theirs", ""
	c = &runtimeapi.Container{Id: container.ID, PodSandboxId: box.ID, Metadata: container.metadata(), State: runtimeapi.ContainerState(container.State), Labels: container.labels()}
	c.Labels["agent"] = "ours"
	return b, c
}

func (n *node) apply(c Change) {
	if c.Put == nil {
		n.objects = slices.DeleteFunc(n.objects, func(o Object) bool { return o.ID == c.Remove })
		return
	}
	for i := range n.objects {
		if n.objects[i].ID == c.Put.ID {
			n.objects[i] = *c.Put
			return
		}
	}
	n.objects = append(n.objects, *c.Put)
}

// begin applies the changes before a relist, and stores the later ones.
func (n *node) begin(s Step) {
	n.later = slices.Clone(s.Changes)
	n.fails, n.turn = s.Look.Fails, s.Turn
	n.reach(0)
}

// reach applies the changes up to a phase of the relist.
func (n *node) reach(phase int) {
	for len(n.later) > 0 && n.later[0].Phase <= phase {
		n.apply(n.later[0])
		n.later = n.later[1:]
	}
}

// of returns the objects of a pod.
func (n *node) of(pod string) (sandboxes, containers []*Object) {
	for i := range n.objects {
		switch o := &n.objects[i]; {
		case o.Pod != pod:
		case o.isSandbox():
			sandboxes = append(sandboxes, o)
		default:
			containers = append(containers, o)
		}
	}
	return sandboxes, containers
}

// troubled reports whether the status of any object of a pod fails or is slow.
func (n *node) troubled(pod string) bool {
	return slices.ContainsFunc(n.objects, func(o Object) bool { return o.Pod == pod && (o.Fails != "" || o.Slow > 0) })
}

// holdsUnlabelled reports whether a sandbox has containers without labels. Such a
// container has no pod when its sandbox is gone.
func (n *node) holdsUnlabelled(sandbox string) bool {
	return slices.ContainsFunc(n.objects, func(o Object) bool { return o.Sandbox == sandbox && o.Unlabelled })
}

func (n *node) find(id string) (Object, bool) {
	i := slices.IndexFunc(n.objects, func(o Object) bool { return o.ID == id })
	if i < 0 {
		return Object{}, false
	}
	return n.objects[i], true
}

// slowest returns the duration of all status calls in sequence.
func (n *node) slowest() time.Duration {
	all := 0
	for i := range n.objects {
		all += n.objects[i].Slow
	}
	return time.Duration(all) * time.Second
}

// list returns the sandboxes or the containers in the order of the runtime.
func (n *node) list(sandboxes bool) (all []Object) {
	for _, o := range n.objects {
		if o.isSandbox() == sandboxes {
			all = append(all, o)
		}
	}
	if len(all) > 0 {
		turn := n.turn % len(all)
		all = append(slices.Clone(all[turn:]), all[:turn]...)
	}
	return all
}

func (n *node) lock() func() {
	n.calls <- struct{}{}
	return func() { <-n.calls }
}

// Version implements the CRI.
func (n *node) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// ListPodSandbox implements the CRI. Sandboxes that are created afterwards appear in the next
// list.
func (n *node) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) (all []*runtimeapi.PodSandbox, err error) {
	defer n.lock()()
	defer n.reach(1)
	if n.fails == "sandboxes" {
		return nil, grpcstatus.Error(codes.Unavailable, "no sandboxes today")
	}
	for _, o := range n.list(true) {
		b := &runtimeapi.PodSandbox{
			Id: o.ID, Metadata: o.sandboxMetadata(), State: runtimeapi.PodSandboxState(o.State),
			CreatedAt: o.Created, Labels: n.labels(&o),
		}
		if n.unfiltered || matches(b.Labels, f.GetLabelSelector()) {
			all = append(all, b)
		}
	}
	if b, _ := n.foreign(); n.shared && (n.unfiltered || matches(b.Labels, f.GetLabelSelector())) {
		all = append(all, b)
	}
	return all, nil
}

// ListContainers implements the CRI.
func (n *node) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) (all []*runtimeapi.Container, err error) {
	defer n.lock()()
	defer n.reach(2)
	if n.fails == "containers" {
		return nil, grpcstatus.Error(codes.Unavailable, "no containers today")
	}
	for _, o := range n.list(false) {
		c := &runtimeapi.Container{
			Id: o.ID, PodSandboxId: o.Sandbox, Metadata: o.metadata(), State: runtimeapi.ContainerState(o.State),
			CreatedAt: o.Created, Labels: n.labels(&o), Annotations: o.annotations(),
			Image: &runtimeapi.ImageSpec{Image: "image"}, ImageRef: "sha256:1",
		}
		if n.unfiltered || matches(c.Labels, f.GetLabelSelector()) {
			all = append(all, c)
		}
	}
	if _, c := n.foreign(); n.shared && (n.unfiltered || matches(c.Labels, f.GetLabelSelector())) {
		all = append(all, c)
	}
	return all, nil
}

// PodSandboxStatus implements the CRI.
func (n *node) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	o, err := n.status(ctx, id)
	if err != nil || o.Fails == "empty" {
		return &runtimeapi.PodSandboxStatusResponse{}, err
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: o.sandboxStatus()}, nil
}

func (o *Object) sandboxStatus() *runtimeapi.PodSandboxStatus {
	b := &runtimeapi.PodSandboxStatus{
		Id: o.ID, Metadata: o.sandboxMetadata(), State: runtimeapi.PodSandboxState(o.State),
		CreatedAt: o.Created, Labels: o.labels(), Network: &runtimeapi.PodSandboxNetworkStatus{Ip: o.IP},
	}
	for ip := range strings.FieldsSeq(o.More) {
		b.Network.AdditionalIps = append(b.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return b
}

// ContainerStatus implements the CRI.
func (n *node) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	o, err := n.status(ctx, id)
	if err != nil || o.Fails == "empty" {
		return &runtimeapi.ContainerStatusResponse{}, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: o.metadata(), State: runtimeapi.ContainerState(o.State),
		CreatedAt: o.Created, StartedAt: o.Started, FinishedAt: o.Finished,
		ExitCode: o.Exit, Reason: o.Reason, Message: o.Message,
		Image: &runtimeapi.ImageSpec{Image: "image"}, ImageRef: "sha256:1",
		Labels: o.labels(), Annotations: o.annotations(),
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: o.Memory}},
	}}, nil
}

// status returns an object after its delay.
func (n *node) status(ctx context.Context, id string) (Object, error) {
	unlock := n.lock()
	o, found := n.find(id)
	unlock()
	if !found {
		return o, grpcstatus.Errorf(codes.NotFound, "%s is gone", id)
	}
	if o.Slow > 0 {
		timer := time.NewTimer(time.Duration(o.Slow) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
	return o, o.failure()
}

func (o *Object) failure() error {
	if o.Fails == "error" {
		return grpcstatus.Errorf(codes.Unknown, "%s is broken", o.ID)
	}
	return nil
}

func (o *Object) sandboxMetadata() *runtimeapi.PodSandboxMetadata {
	m := &runtimeapi.PodSandboxMetadata{Name: "name-" + o.Pod, Namespace: "ns", Uid: o.Pod, Attempt: o.Attempt}
	if o.NoName {
		m.Name = ""
	}
	return m
}

func (o *Object) metadata() *runtimeapi.ContainerMetadata {
	return &runtimeapi.ContainerMetadata{Name: o.Name, Attempt: o.Attempt}
}

// labels returns an object's labels in a list.
func (n *node) labels(o *Object) map[string]string {
	l := o.labels()
	if n.labelled && l != nil {
		maps.Copy(l, selector())
	}
	return l
}

func (o *Object) labels() map[string]string {
	if o.Unlabelled {
		return nil
	}
	l := map[string]string{
		"io.kubernetes.pod.name":      "name-" + o.Pod,
		"io.kubernetes.pod.namespace": "ns",
		"io.kubernetes.pod.uid":       o.Pod,
	}
	if !o.isSandbox() && !o.NoName {
		l["io.kubernetes.container.name"] = o.Name
	}
	return l
}

func (o *Object) annotations() map[string]string {
	if o.Restarts == "" {
		return nil
	}
	return map[string]string{"io.kubernetes.container.restartCount": o.Restarts}
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// text prints the fields of a container's status that no other fact contains.
func (o *Object) text() string {
	s := fmt.Sprintf("%s created %d", stateText(o.State), o.Created)
	if o.State != created {
		s += fmt.Sprintf(" started %d", o.Started)
	}
	if o.State == exited {
		s += fmt.Sprintf(" finished %d exit %d reason %s%s", o.Finished, o.Exit, o.Reason, o.Message)
	}
	return fmt.Sprintf("%s memory %d", s, o.Memory)
}

func stateText(s int32) string {
	switch s {
	case created:
		return "created"
	case running:
		return "running"
	case exited:
		return "exited"
	default:
		return "unknown"
	}
}
