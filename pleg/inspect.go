package pleg

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	netutils "k8s.io/utils/net"

	"github.com/kubeparts/kubeparts/podcache"
)

// Errors of empty answers, with the kubelet's texts.
var (
	errNoSandboxStatus   = errors.New("pod sandbox status is nil")
	errNoContainerStatus = errors.New("container status is nil")
)

// statusError is the failure of an inspection: that of the status of one object.
type statusError struct {
	id  string
	err error
}

func (e *statusError) Error() string { return "status of " + e.id + ": " + e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// cause returns the runtime's own error, which is what the cache has, as in the kubelet.
func cause(err error) error {
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.err
	}
	return err
}

// snapshot is the result of an inspection: the status, and the sandbox that its
// IPs are of.
type snapshot struct {
	status   *podcache.Status
	ipSource string
}

// inspector asks for the statuses of one pod's objects.
type inspector struct {
	runtime Runtime
	// before is the last good snapshot; what has not changed since is taken from
	// it, unless all is to be asked for anew.
	before snapshot
	all    bool
}

// inspect returns a new snapshot of the pod whose listed objects are given. An
// object that has gone in the meantime is left out, as the next listing will
// tell; any other failure is the pod's.
func (in inspector) inspect(ctx context.Context, uid types.UID, objects []object) (snapshot, error) {
	var known podcache.Status
	if in.before.status != nil && !in.all {
		known = *in.before.status
	}
	var err error
	status := &podcache.Status{UID: uid}
	status.Sandboxes, err = gather(ctx, objects, true, known.Sandboxes, sandboxes{in.runtime})
	if err != nil {
		return snapshot{}, err
	}
	status.Containers, err = gather(ctx, objects, false, known.Containers, containers{in.runtime})
	if err != nil {
		return snapshot{}, err
	}
	status.SandboxOf = sandboxOf(objects)
	podcache.SortSandboxes(status.Sandboxes)
	podcache.SortContainers(status.Containers)
	status.Name, status.Namespace = podName(objects)
	next := snapshot{status: status}
	status.IPs, next.ipSource = podIPs(status, in.before)
	return next, nil
}

// sandboxOf returns the sandbox of each container, which only lists tell.
func sandboxOf(objects []object) map[string]string {
	boxes := make(map[string]string, len(objects))
	for i := range objects {
		if o := &objects[i]; !o.sandbox {
			boxes[o.id] = o.box
		}
	}
	return boxes
}

// source is what differs between the two kinds of objects.
type source[S any] interface {
	// ask asks the runtime; without an error its answer is not nil.
	ask(ctx context.Context, id string) (S, error)
	// current says whether a known status still tells all about a listed object.
	current(o *object, known S) bool
}

// gather returns the statuses of the objects of one kind, from known where that
// still tells all.
func gather[S interface {
	comparable
	GetId() string
}](ctx context.Context, objects []object, sandbox bool, known []S, from source[S]) ([]S, error) {
	byID := make(map[string]S, len(known))
	for _, s := range known {
		byID[s.GetId()] = s
	}
	var found []S
	var none S
	for i := range objects {
		o := &objects[i]
		if o.sandbox != sandbox {
			continue
		}
		if s := byID[o.id]; s != none && from.current(o, s) {
			found = append(found, s)
			continue
		}
		s, err := from.ask(ctx, o.id)
		switch {
		case err == nil:
			found = append(found, s)
		case !crierrors.IsNotFound(err):
			return nil, &statusError{o.id, err}
		}
	}
	return found, nil
}

type sandboxes struct{ runtime Runtime }

func (s sandboxes) ask(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	answer, err := s.runtime.PodSandboxStatus(ctx, id, false)
	if err == nil && answer.GetStatus() == nil {
		err = errNoSandboxStatus
	}
	return answer.GetStatus(), err
}

// current asks again about a ready sandbox without an address: it may have got one.
func (sandboxes) current(o *object, known *runtimeapi.PodSandboxStatus) bool {
	if o.state == unknown || sandboxState(known.GetState()) != o.state {
		return false
	}
	return o.state != running || known.GetNetwork().GetIp() != ""
}

type containers struct{ runtime Runtime }

// ask returns a state that this build does not know as unknown.
func (c containers) ask(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := c.runtime.ContainerStatus(ctx, id, false)
	status := answer.GetStatus()
	if err == nil && status == nil {
		err = errNoContainerStatus
	}
	if _, known := runtimeapi.ContainerState_name[int32(status.GetState())]; !known {
		status = proto.CloneOf(status)
		status.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
	return status, err
}

// current never asks again about an exited container: nothing of it changes.
func (containers) current(o *object, known *runtimeapi.ContainerStatus) bool {
	return o.state != unknown && containerState(known.GetState()) == o.state
}

// podName returns the names that a listed sandbox has, or else a listed container.
func podName(objects []object) (name, namespace string) {
	for i := range objects { // sandboxes come first
		if o := &objects[i]; o.podName != "" {
			return o.podName, o.podNamespace
		}
	}
	return "", ""
}

// podIPs returns the addresses of the newest sandbox if it is ready. Otherwise those
// from before stay unless another sandbox is ready, because a pod that ends is still
// known by them. The network of a sandbox may also go before the sandbox does
// (kubernetes#82276).
func podIPs(s *podcache.Status, before snapshot) (ips []string, source string) {
	newest := s.ReadySandbox()
	if ips := sandboxIPs(newest); len(ips) > 0 {
		return ips, newest.GetId()
	}
	if before.status == nil {
		return nil, ""
	}
	for _, b := range s.Sandboxes {
		isOther := b != newest || b.GetId() != before.ipSource
		if b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && isOther {
			return nil, ""
		}
	}
	return before.status.IPs, before.ipSource
}

// sandboxIPs returns the primary address, if there is one, and the others; nil if any
// of them is not an address. Leading zeros are allowed.
func sandboxIPs(b *runtimeapi.PodSandboxStatus) []string {
	var ips []string
	if ip := b.GetNetwork().GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, more := range b.GetNetwork().GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	for _, ip := range ips {
		if netutils.ParseIPSloppy(ip) == nil {
			return nil
		}
	}
	return ips
}
