package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	netutils "k8s.io/utils/net"

	"github.com/kubeparts/kubeparts/podcache"
)

// Errors of empty responses, with the kubelet's texts.
var (
	errNoSandboxStatus   = errors.New("pod sandbox status is nil")
	errNoContainerStatus = errors.New("container status is nil")
)

// snapshot is the result of an inspection: the status, and the ID of the sandbox to which
// the IPs in the status belong.
type snapshot struct {
	status   *podcache.Status
	ipSource string
}

// job is the inspection of one pod. The goroutine that runs the job owns it until the job
// is finished.
type job struct {
	pass    *pass
	record  *record
	objects []object // as listed
	at      time.Time
	queued  time.Time
	// The field before is the result of the last successful inspection. The method inspect
	// reuses the statuses in this result that are still current. If the field all is true,
	// the method requests every status.
	before snapshot
	all    bool
	// The field retry means that the last inspection of the pod failed. The field podSync
	// means that the method finish delivers a PodSync if it delivers no other event.
	retry, podSync bool

	found snapshot
	err   error
}

// startJobs starts queued jobs up to the limit of MaxInspections. Pods whose last
// inspection failed come last and use at most half of the limit, so that inspections that
// hang do not block the inspections of other pods. The caller holds mu.
func (g *Generator) startJobs() {
	for _, retry := range [...]bool{false, true} {
		most := g.cfg.MaxInspections
		if retry {
			most = max(1, most/2)
		}
		g.queue = slices.DeleteFunc(g.queue, func(j *job) bool {
			if j.retry != retry || g.running[retry] >= most || g.running[false]+g.running[true] >= g.cfg.MaxInspections {
				return false
			}
			g.running[retry]++
			go g.work(j.pass.ctx, j)
			return true
		})
	}
}

// work runs a job and adds the job to g.finished. The method collect processes the result.
func (g *Generator) work(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.InspectTimeout)
	defer cancel()
	if j.err = ctx.Err(); j.err == nil {
		j.found, j.err = j.inspect(ctx, g.cfg.Runtime)
	}
	g.locked(func() {
		g.finished = append(g.finished, j)
		close(g.inspected)
		g.inspected = make(chan struct{})
		g.running[j.retry]--
		g.startJobs()
	})
	g.loop.Trigger()
}

// inspect returns a new snapshot of the pod. If the runtime reports that an object does not
// exist, inspect omits the object, because the next listing will not contain it either. If
// the request of a status fails with another error, the inspection of the pod fails.
func (j *job) inspect(ctx context.Context, rt Runtime) (snapshot, error) {
	var known podcache.Status
	if j.before.status != nil && !j.all {
		known = *j.before.status
	}
	status := &podcache.Status{UID: j.record.uid, SandboxOf: sandboxOf(j.objects)}
	status.Name, status.Namespace = podName(j.objects)
	var err error
	status.Sandboxes, err = collectStatuses(j.objects, true, known.Sandboxes, isSandboxCurrent,
		func(id string) (*runtimeapi.PodSandboxStatus, error) { return sandboxStatus(ctx, rt, id) })
	if err != nil {
		return snapshot{}, err
	}
	status.Containers, err = collectStatuses(j.objects, false, known.Containers, isContainerCurrent,
		func(id string) (*runtimeapi.ContainerStatus, error) { return containerStatus(ctx, rt, id) })
	if err != nil {
		return snapshot{}, err
	}
	podcache.SortSandboxes(status.Sandboxes)
	podcache.SortContainers(status.Containers)
	next := snapshot{status: status}
	status.IPs, next.ipSource = podIPs(status, j.before)
	return next, nil
}

// agrees reports whether each listed object has a status with the listed state.
func (s snapshot) agrees(objects []object) bool {
	states := map[string]state{}
	for _, b := range s.status.Sandboxes {
		states[b.GetId()] = sandboxState(b.GetState())
	}
	for _, c := range s.status.Containers {
		states[c.GetId()] = containerState(c.GetState())
	}
	return !slices.ContainsFunc(objects, func(o object) bool {
		state, found := states[o.id]
		return !found || state != o.state
	})
}

// sandboxOf returns the sandbox ID of each container. Only the lists contain this ID.
func sandboxOf(objects []object) map[string]string {
	sandboxes := make(map[string]string, len(objects))
	for i := range objects {
		if o := &objects[i]; !o.sandbox {
			sandboxes[o.id] = o.sandboxID
		}
	}
	return sandboxes
}

// collectStatuses returns the statuses of the objects of one kind: the known status if it
// is current, otherwise the result of fetch.
func collectStatuses[S interface{ GetId() string }](objects []object, sandbox bool, known []S,
	isCurrent func(*object, S) bool, fetch func(id string) (S, error),
) ([]S, error) {
	var found []S
	kind := "container"
	if sandbox {
		kind = "sandbox"
	}
	byID := make(map[string]S, len(known))
	for _, s := range known {
		byID[s.GetId()] = s
	}
	for i := range objects {
		o := &objects[i]
		if o.sandbox != sandbox {
			continue
		}
		var err error
		s, ok := byID[o.id]
		if !ok || !isCurrent(o, s) {
			s, err = fetch(o.id)
		}
		switch {
		case err == nil:
			found = append(found, s)
		case !crierrors.IsNotFound(err):
			return nil, fmt.Errorf("status of %s %s: %w", kind, o.id, err)
		}
	}
	return found, nil
}

func sandboxStatus(ctx context.Context, rt Runtime, id string) (*runtimeapi.PodSandboxStatus, error) {
	answer, err := rt.PodSandboxStatus(ctx, id, false)
	if err == nil && answer.GetStatus() == nil {
		err = errNoSandboxStatus
	}
	return answer.GetStatus(), err
}

// containerStatus returns the status of a container. A state that this build does not
// know becomes CONTAINER_UNKNOWN.
func containerStatus(ctx context.Context, rt Runtime, id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := rt.ContainerStatus(ctx, id, false)
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

// isSandboxCurrent reports whether a known status is still valid for a listed sandbox. The
// known status of a ready sandbox without an address is not valid, because the runtime may
// have added an address.
func isSandboxCurrent(o *object, known *runtimeapi.PodSandboxStatus) bool {
	if o.state == unknown || sandboxState(known.GetState()) != o.state {
		return false
	}
	return o.state != running || known.GetNetwork().GetIp() != ""
}

// isContainerCurrent reports whether a known status is still valid for a listed container.
// A status of a running or exited container is valid until the listed state changes.
func isContainerCurrent(o *object, known *runtimeapi.ContainerStatus) bool {
	return o.state != created && o.state != unknown && containerState(known.GetState()) == o.state
}

// podName returns the name and namespace of the pod from the first listed object that has
// a name. Sandboxes come before containers.
func podName(objects []object) (name, namespace string) {
	for i := range objects {
		if o := &objects[i]; o.podName != "" {
			return o.podName, o.podNamespace
		}
	}
	return "", ""
}

// podIPs returns the addresses of the pod and the ID of the sandbox to which they belong:
//   - If the newest sandbox is ready and has addresses: its addresses.
//   - Otherwise, if no sandbox is ready, or if only the newest sandbox is ready and the
//     previous addresses belong to it: the previous addresses. A terminating pod thus keeps
//     its addresses, although the runtime may remove the network of a sandbox before the
//     sandbox itself (kubernetes#82276).
//   - Otherwise: no addresses.
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

// sandboxIPs returns the primary address, if it is set, and the additional addresses. It
// returns nil if any address is not a valid IP address. Leading zeros are allowed.
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
