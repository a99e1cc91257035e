package podrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// podSync is the state of one call of SyncPod. It carries out a plan and
// collects the containers that must wait.
type podSync struct {
	*Runner
	pod     *corev1.Pod
	status  *podcache.Status
	node    Node
	waiting map[string]corev1.ContainerStateWaiting
	retryAt time.Time
	// prepared holds the configurations that prepareReplacements has prepared,
	// by container name. images holds the images that are present or being
	// pulled, by the name of the container or image volume.
	prepared map[string]*runtimeapi.ContainerConfig
	images   map[string]*fetched
	// volumes are the paths of the pod's volumes, and sandbox is the sandbox in
	// which containers are created. unprepared is the error of prepareNode.
	// prepareNode sets these fields.
	volumes    map[string]string
	readOnly   map[string]bool // names of volumes
	sandbox    *sandbox
	unprepared error
	replaces   bool // the plan replaces running containers
}

// sandbox is the sandbox in which containers are created: the existing sandbox
// or a new sandbox.
type sandbox struct {
	id     string // empty until the sandbox is created
	config *runtimeapi.PodSandboxConfig
	ips    []string
}

// errBackingOff is the error in the RetryError that SyncPod returns for a
// container or sandbox that backs off.
var errBackingOff = errors.New("a container is backing off")

// do carries out the plan in the order of its fields. If a removal fails, the
// method continues, and the next plan contains the removal again. A restart of
// all containers, however, ends at the first error: see restartAll.
func (t *podSync) do(ctx context.Context, a Actions) error {
	if a.StopPod != "" {
		if len(t.status.Sandboxes) > 0 && a.CreateSandbox != "" {
			t.event(t.pod, corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		deadline := lifecycle.NewDeadline(t.cfg.Clock, t.cfg.Clock.Now().Add(lifecycle.KillGrace(t.pod, nil)))
		if err := t.stopPod(ctx, t.pod, t.status, deadline, a.StopPod); err != nil {
			return err
		}
	}
	unprepared := t.prepareReplacements(ctx, &a)
	if err := t.kill(ctx, a.Kill); err != nil {
		return errors.Join(unprepared, err)
	}
	if a.RestartAll != nil {
		return t.restartAll(ctx, a)
	}
	errs := errors.Join(unprepared, t.remove(ctx, a.Remove), t.pin(ctx, a.Pin), t.update(ctx, a.Update))
	if len(a.Start) == 0 && a.CreateSandbox == "" {
		return errors.Join(errs, t.refreshVolumes(ctx))
	}
	if err := t.prepareNode(ctx, a); err != nil {
		return errors.Join(errs, err)
	}
	if t.replaces {
		if err := t.ensureCgroup(ctx, a); err != nil {
			return errors.Join(errs, err)
		}
		t.sandbox.config = t.plannedSandbox(a).config // now with the cgroup
	}
	defer t.fetchImages(ctx, a.Start)()
	releaseSlot, err := t.slots.acquire(ctx, t.cfg.Clock)
	if err != nil {
		return errors.Join(errs, fmt.Errorf("wait for a start slot for pod %s: %w", podName(t.pod), err))
	}
	defer releaseSlot()
	if a.CreateSandbox != "" {
		err := t.createSandbox(ctx)
		t.cfg.Observer.SandboxStarted(t.pod, err)
		if err != nil {
			return errors.Join(errs, err)
		}
	}
	return errors.Join(errs, t.startAll(ctx, a.Start))
}

// restartAll removes all containers in order and returns at the first error. If
// it continued, it could remove the container that requested the restart while
// other old containers remain. The next plan would then treat the remaining
// containers as already restarted.
func (t *podSync) restartAll(ctx context.Context, a Actions) error {
	for i := range a.Remove {
		if err := t.remove(ctx, a.Remove[i:i+1]); err != nil {
			return err
		}
	}
	for c := range podspec.Containers(&t.pod.Spec) {
		if c.Name == a.RestartAll.Name {
			t.cfg.RestartBackoff.Next(RestartKey(t.pod, c), a.RestartAll.After)
		}
	}
	return nil
}

// prepareReplacements prepares the new instances of running containers that a
// changed definition or a resize replaces, before the old instances are killed.
// Above all, it ensures that the images of the new instances are present. If a
// preparation fails, prepareReplacements removes the kill and the start from the
// plan, so the old instance keeps running. With restartPolicy Never, a killed
// container would not be started again. It then also removes all resizes,
// because the old instance keeps its limits.
func (t *podSync) prepareReplacements(ctx context.Context, a *Actions) error {
	var errs []error
	failed := map[string]bool{}
	for _, k := range a.Kill {
		i := slices.IndexFunc(a.Start, func(s Start) bool { return s.Name == k.Name })
		if i < 0 || k.Cause != CauseChanged && k.Cause != CauseResize {
			continue
		}
		t.replaces = true
		err := t.prepareNode(ctx, *a)
		if err == nil {
			t.prepared[k.Name], err = t.prepare(ctx, specContainer(t.pod, a.Start[i]), a.Start[i].Attempt)
		}
		if err != nil {
			errs, failed[k.Name] = append(errs, t.recordFailure(k.Name, err)), true
		}
	}
	a.Kill = slices.DeleteFunc(slices.Clone(a.Kill), func(k Kill) bool { return failed[k.Name] })
	a.Start = slices.DeleteFunc(slices.Clone(a.Start), func(s Start) bool { return failed[s.Name] })
	if len(failed) > 0 {
		a.Update = nil
	}
	return errors.Join(errs...)
}

// createSandbox creates the sandbox and reads its addresses.
func (t *podSync) createSandbox(ctx context.Context) error {
	if err := t.makeLogs(); err != nil {
		return err
	}
	_, warnings := DNSConfig(t.pod, t.node)
	for _, w := range warnings {
		about := runtime.Object(t.pod)
		if w.OfNode {
			about = nodeReference(t.node.Name)
		}
		t.event(about, corev1.EventTypeWarning, w.Reason, "%s", w.Message)
	}
	handler, err := RuntimeHandler(t.pod, t.node)
	if err != nil {
		return err // checked before by CheckSandbox
	}
	if t.sandbox.id, err = t.cfg.Sandboxes.RunPodSandbox(ctx, t.sandbox.config, handler); err != nil {
		t.sandboxFailed(ctx, failedSandbox, "Failed to create pod sandbox: %v", err)
		return fmt.Errorf("create sandbox of pod %s: %w", podName(t.pod), err)
	}
	if len(t.status.Sandboxes) > 0 {
		t.cfg.RestartBackoff.Next(sandboxKey(t.pod.UID), createdAt(t.status.Sandboxes[0]))
	}
	answer, err := t.cfg.Sandboxes.PodSandboxStatus(ctx, t.sandbox.id, false)
	if err != nil {
		t.sandboxFailed(ctx, sandboxUnknown, "Unable to get pod sandbox status: %v", err)
		return fmt.Errorf("status of sandbox %s: %w", t.sandbox.id, err)
	}
	t.sandbox.ips = sandboxIPs(answer.GetStatus())
	return nil
}

// sandboxFailed records an event about a failed call for the pod's sandbox. A
// call that failed because the sync was cancelled, for example because the pod
// was deleted, is not a failure of the pod.
func (t *podSync) sandboxFailed(ctx context.Context, reason, format string, err error) {
	if ctx.Err() == nil {
		t.event(t.pod, corev1.EventTypeWarning, reason, format, err)
	}
}

// nodeReference returns a reference to a node for events. The UID is the node's
// name, so that kubectl describe shows the events.
func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// plannedSandbox returns the sandbox in which the plan starts containers: a new
// sandbox, or the newest existing sandbox.
func (t *podSync) plannedSandbox(a Actions) *sandbox {
	if a.CreateSandbox != "" {
		return &sandbox{config: SandboxConfig(t.pod, a.SandboxAttempt, t.node)}
	}
	newest := t.status.Sandboxes[0]
	return &sandbox{
		id: newest.GetId(), ips: sandboxIPs(newest),
		config: SandboxConfig(t.pod, newest.GetMetadata().GetAttempt(), t.node),
	}
}

// startAll starts containers one after the other in the plan's order. If a
// container can't be started, startAll continues with the next container. It
// stops at a failure only if the sync was cancelled.
func (t *podSync) startAll(ctx context.Context, starts []Start) error {
	var errs []error
	for _, s := range starts {
		c := specContainer(t.pod, s)
		if c == nil {
			continue
		}
		err := t.start(ctx, c, s)
		code, _, _ := waitingReason(err)
		t.cfg.Observer.ContainerStarted(ContainerStart{Pod: t.pod, Start: s, Code: code, Err: err})
		if err == nil {
			continue
		}
		errs = append(errs, t.recordFailure(s.Name, err))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// recordFailure records, for the pod's status, why a container was not started,
// and returns the error for the sync. If the start only waits for a back-off,
// the error is a RetryError with the end of the back-off. With another type of
// error, the pod worker would repeat the sync, and log the error, long before
// the end of the back-off.
func (t *podSync) recordFailure(name string, err error) error {
	reason, message, retryAt := waitingReason(err)
	err = fmt.Errorf("start container %s of pod %s: %w", name, podName(t.pod), err)
	if reason == "" {
		return err
	}
	if t.waiting == nil {
		t.waiting = map[string]corev1.ContainerStateWaiting{}
	}
	t.waiting[name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
	if !retryAt.IsZero() {
		return &podworker.RetryError{At: retryAt, Err: err}
	}
	return err
}

func (t *podSync) start(ctx context.Context, c *corev1.Container, s Start) error {
	id := s.ID
	if id == "" {
		if s.Kind != Ephemeral {
			t.setEnforcedContainer(ctx, t.pod, c)
		}
		var err error
		if id, err = t.create(ctx, c, s.Attempt); err != nil {
			return err
		}
	}
	if !s.After.IsZero() { // only after the creation: a failed creation must not prolong the back-off
		t.cfg.RestartBackoff.Next(RestartKey(t.pod, c), s.After)
	}
	starting, done := lingering(ctx, t.cfg.Clock, startLinger)
	defer done()
	if err := t.cfg.Containers.StartContainer(starting, id); err != nil {
		return t.startFailure(c.Name, RunContainerError, err)
	}
	t.event(podspec.ContainerReference(t.pod, c.Name), corev1.EventTypeNormal, "Started", "Container started")
	t.linkLog(ctx, c.Name, s.Attempt, id)
	return t.postStart(ctx, c, id)
}

func (t *podSync) create(ctx context.Context, c *corev1.Container, attempt uint32) (string, error) {
	config := t.prepared[c.Name]
	if config == nil {
		var err error
		if config, err = t.prepare(ctx, c, attempt); err != nil {
			return "", err
		}
	}
	id, err := t.cfg.Containers.CreateContainer(ctx, t.sandbox.id, config, t.sandbox.config)
	if err != nil {
		return "", t.startFailure(c.Name, CreateContainerError, err)
	}
	if cpus := config.GetLinux().GetResources(); t.cfg.Inject != nil {
		t.setCpuset(t.pod.UID, id, Cpuset{CPUs: cpus.GetCpusetCpus(), Mems: cpus.GetCpusetMems()})
	}
	if f := t.images[c.Name]; f != nil && f.result.Release != nil {
		f.result.Release() // before the hooks, which may take long
	}
	t.event(podspec.ContainerReference(t.pod, c.Name), corev1.EventTypeNormal, "Created", "Container created")
	return id, nil
}

// startFailure records an event about a container that could not be started,
// and returns the error for the container's status. The event and the returned
// error contain the text of err, without the code of a gRPC error.
func (t *podSync) startFailure(name, reason string, err error) error {
	e := &startError{reason: reason, err: err}
	t.event(podspec.ContainerReference(t.pod, name), corev1.EventTypeWarning, "Failed", "Error: %s", e.text())
	return e
}

// specContainer returns the container in the spec that s starts, or nil.
func specContainer(pod *corev1.Pod, s Start) *corev1.Container {
	if s.Kind == Ephemeral {
		for i := range pod.Spec.EphemeralContainers {
			if c := podspec.Ephemeral(&pod.Spec.EphemeralContainers[i]); c.Name == s.Name {
				return c
			}
		}
		return nil
	}
	for c, init := range podspec.Containers(&pod.Spec) {
		if c.Name == s.Name && kindOf(c, init) == s.Kind {
			return c
		}
	}
	return nil
}

func sandboxIPs(s *runtimeapi.PodSandboxStatus) []string {
	var ips []string
	if ip := s.GetNetwork().GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, a := range s.GetNetwork().GetAdditionalIps() {
		ips = append(ips, a.GetIp())
	}
	return ips
}

// startLinger is how long a StartContainer call may continue after its sync was
// cancelled.
const startLinger = 5 * time.Second

// lingering returns a context that stays active for the time d after ctx is
// done. Without it, a cancelled StartContainer call would leave a dead
// container in the runtime (containerd: exit code 128, StartError), which would
// count as a restart. The returned function ends the context and waits for its
// goroutine.
func lingering(ctx context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer := c.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		cancel()
		if !stop() {
			<-ended
		}
	}
}
