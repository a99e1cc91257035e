package pleg

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/podcache"
)

// errNoStatus says that an answer was empty.
var errNoStatus = errors.New("the runtime returned no status")

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
	status.Name, status.Namespace = podName(status)
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
	// ask asks the runtime; its answer may be nil.
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
		if err == nil && s == none {
			err = errNoStatus
		}
		switch {
		case err == nil:
			found = append(found, s)
		case !crierrors.IsNotFound(err):
			return nil, fmt.Errorf("status of %s: %w", o.id, err)
		}
	}
	return found, nil
}

type sandboxes struct{ runtime Runtime }

func (s sandboxes) ask(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	answer, err := s.runtime.PodSandboxStatus(ctx, id, false)
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

func (c containers) ask(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := c.runtime.ContainerStatus(ctx, id, false)
	return answer.GetStatus(), err
}

// current never asks again about an exited container: nothing of it changes.
func (containers) current(o *object, known *runtimeapi.ContainerStatus) bool {
	return o.state != unknown && containerState(known.GetState()) == o.state
}

// podName takes the names from a sandbox, or else from a container's labels.
func podName(s *podcache.Status) (name, namespace string) {
	for _, b := range s.Sandboxes {
		if m := b.GetMetadata(); m.GetName() != "" {
			return m.GetName(), m.GetNamespace()
		}
	}
	for _, c := range s.Containers {
		if l := c.GetLabels(); l[crilabels.PodName] != "" {
			return l[crilabels.PodName], l[crilabels.PodNamespace]
		}
	}
	return "", ""
}

// podIPs returns the addresses of the newest sandbox if it is ready and has any.
// Otherwise the old ones stay, because a pod that ends is still known by them,
// unless another sandbox is ready: they are not its. The network of a sandbox may
// also go before the sandbox does (kubernetes#82276).
func podIPs(s *podcache.Status, before snapshot) (ips []string, source string) {
	if b := s.ReadySandbox(); b != nil {
		if ips := sandboxIPs(b); len(ips) > 0 {
			return ips, b.GetId()
		}
	}
	if before.status == nil || len(before.status.IPs) == 0 {
		return nil, ""
	}
	for _, b := range s.Sandboxes {
		if b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && b.GetId() != before.ipSource {
			return nil, ""
		}
	}
	return before.status.IPs, before.ipSource
}

// sandboxIPs returns the primary address and the others; none if the primary one
// is not an address, and without those that are not.
func sandboxIPs(b *runtimeapi.PodSandboxStatus) []string {
	var ips []string
	if _, err := netip.ParseAddr(b.GetNetwork().GetIp()); err != nil {
		return nil
	}
	ips = append(ips, b.GetNetwork().GetIp())
	for _, more := range b.GetNetwork().GetAdditionalIps() {
		if _, err := netip.ParseAddr(more.GetIp()); err == nil {
			ips = append(ips, more.GetIp())
		}
	}
	return ips
}
