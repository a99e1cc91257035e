package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Labels and annotations of the objects that the checks create.
const (
	labelRun   = "kubeparts.conformance/run"   // one value per check and run
	labelName  = "kubeparts.conformance/name"  // name of the pod or container
	labelGroup = "kubeparts.conformance/group" // for filters
	annotation = "kubeparts.conformance/note"
)

// The kubelet's labels. The suite has its own constants, so that it needs no Kubernetes
// module except cri-api.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

// note is the value of an annotation, with characters that a runtime must not change.
const note = `{"text": "ümläut, \"quotes\"` + "\n" + `and a new line"}`

// reporter has the methods of *testing.T that checks call.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
	TempDir() string
}

// probe is the state of a running check, with helpers.
type probe struct {
	Options
	reporter
	rt    runtimeapi.RuntimeServiceClient
	img   runtimeapi.ImageServiceClient
	clock clock.WithTicker
	run   string
	logs  string
	pods  int
}

func newProbe(t reporter, conn grpc.ClientConnInterface, o Options) *probe {
	p := &probe{
		Options: o, reporter: t, clock: clock.RealClock{}, run: strings.ToLower(rand.Text()[:16]), logs: o.LogRoot,
		rt: runtimeapi.NewRuntimeServiceClient(conn), img: runtimeapi.NewImageServiceClient(conn),
	}
	if p.logs == "" {
		p.logs = t.TempDir()
	}
	t.Cleanup(p.clean)
	return p
}

// clean removes all objects that the check created, because reserved names and addresses
// would make other checks fail.
func (p *probe) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context()), 2*p.CallTimeout)
	defer cancel()
	list, err := p.rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: p.ourPods()})
	p.ok(err, "containergc: cannot list the pods to remove")
	for _, s := range list.GetItems() {
		_, err := p.rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		p.ok(err, "podrunner: cannot stop a pod")
		_, err = p.rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		p.ok(err, "containergc: cannot remove a pod")
	}
}

// must ends the check with a failure if ok is false. The first text describes which manager
// would break, and how. The second text and args are the format and the arguments of the
// observation.
func (p *probe) must(ok bool, breaks, saw string, args ...any) {
	p.Helper()
	if !ok {
		p.Fatalf("%s\n\tseen: %s", breaks, fmt.Sprintf(saw, args...))
	}
}

func (p *probe) ok(err error, breaks string) {
	p.Helper()
	p.must(err == nil, breaks, "%v", err)
}

// optional is like the method ok, for a call that the managers do not require. It skips
// the check if the runtime returns Unimplemented.
func (p *probe) optional(err error, breaks string) {
	p.Helper()
	p.unlessUnimplemented(err)
	p.ok(err, breaks)
}

func (p *probe) unlessUnimplemented(err error) {
	p.Helper()
	if grpcstatus.Code(err) == codes.Unimplemented {
		p.Skipf("NOT CHECKED, the runtime returned Unimplemented: %v", err)
	}
}

func (p *probe) code(want codes.Code, err error, breaks string) {
	p.Helper()
	p.must(grpcstatus.Code(err) == want, breaks, "error %v, not %v", err, want)
}

// gone accepts nil and an error with the code NotFound, because all managers treat both as
// removed. Any other error fails the check.
func (p *probe) gone(err error, breaks string) {
	p.Helper()
	p.must(err == nil || grpcstatus.Code(err) == codes.NotFound, breaks, "%v", err)
}

// call returns the context of one call.
func (p *probe) call() context.Context { return p.callFor(0) }

// callFor returns the context of a call that may take d longer than CallTimeout.
func (p *probe) callFor(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), p.CallTimeout+d)
	p.Cleanup(cancel)
	return ctx
}

// pollPeriod is the time between two polls of the runtime.
const pollPeriod = 10 * time.Millisecond

// until calls poll() repeatedly until poll() returns true. After ChangeTimeout, it fails
// the check. poll() also returns the observation.
func (p *probe) until(breaks string, poll func() (ok bool, saw string)) {
	p.Helper()
	tick := p.clock.NewTicker(pollPeriod)
	defer tick.Stop()
	for end := p.clock.Now().Add(p.ChangeTimeout); ; <-tick.C() {
		ok, saw := poll()
		if ok {
			return
		}
		p.must(p.clock.Now().Before(end), breaks, "after %v: %s", p.ChangeTimeout, saw)
	}
}

// pass waits for the duration d.
func (p *probe) pass(d time.Duration) {
	timer := p.clock.NewTimer(d)
	defer timer.Stop()
	<-timer.C()
}

func (p *probe) ourPods() *runtimeapi.PodSandboxFilter {
	return &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelRun: p.run}}
}

func (p *probe) ourContainers() *runtimeapi.ContainerFilter {
	return &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelRun: p.run}}
}

// pod is a sandbox that a check has created, with its config.
type pod struct {
	id     string
	config *runtimeapi.PodSandboxConfig
}

// podConfig returns the config of a new pod.
func (p *probe) podConfig() *runtimeapi.PodSandboxConfig {
	p.pods++
	name := fmt.Sprintf("conformance-%s-%d", p.run, p.pods)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "conformance", Uid: "uid-" + name},
		Hostname: "conformance",
		Labels: map[string]string{
			labelRun: p.run, labelName: name, labelGroup: "even",
			labelPodName: name, labelPodNamespace: "conformance", labelPodUID: "uid-" + name,
		},
		Annotations:  map[string]string{annotation: note},
		LogDirectory: filepath.Join(p.logs, name),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: p.CgroupParent},
	}
	if p.pods%2 == 1 {
		config.Labels[labelGroup] = "odd"
	}
	// The agent creates the log folder, not the runtime.
	p.ok(os.MkdirAll(config.LogDirectory, 0o755), "this test: cannot create the log folder")
	return config
}

func (p *probe) runPod() *pod {
	p.Helper()
	return p.runPodOf(p.podConfig())
}

func (p *probe) runPodOf(config *runtimeapi.PodSandboxConfig) *pod {
	p.Helper()
	r, err := p.rt.RunPodSandbox(p.call(), &runtimeapi.RunPodSandboxRequest{Config: config})
	p.ok(err, "podrunner: cannot create a pod")
	p.must(r.GetPodSandboxId() != "", "podrunner: a created pod has no id", "%v", r)
	return &pod{r.GetPodSandboxId(), config}
}

func (p *probe) stopPod(id string) {
	p.Helper()
	_, err := p.rt.StopPodSandbox(p.call(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	p.ok(err, "podrunner: StopPodSandbox fails, so the pod never terminates")
}

func (p *probe) removePod(id string) {
	p.Helper()
	_, err := p.rt.RemovePodSandbox(p.call(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	p.ok(err, "podrunner: RemovePodSandbox fails, so the pod stays for ever")
}

func (p *probe) podStatus(id string) *runtimeapi.PodSandboxStatus {
	p.Helper()
	r, err := p.rt.PodSandboxStatus(p.call(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	p.ok(err, "pleg: cannot get the status of an existing pod")
	return r.GetStatus()
}

func (p *probe) listPods(filter *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	p.Helper()
	r, err := p.rt.ListPodSandbox(p.call(), &runtimeapi.ListPodSandboxRequest{Filter: filter})
	p.ok(err, "pleg: cannot list pods, so it detects no changes")
	return r.GetItems()
}

// containerConfig returns the config of a container with this attempt.
func (p *probe) containerConfig(name string, w Workload, attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:       &runtimeapi.ImageSpec{Image: w.Image, UserSpecifiedImage: w.Image},
		Command:     w.Command,
		Args:        w.Args,
		Labels:      map[string]string{labelRun: p.run, labelName: name},
		Annotations: map[string]string{annotation: note},
		LogPath:     fmt.Sprintf("%s_%d.log", name, attempt),
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}},
	}
}

// tryCreate creates a container with the kubelet's labels: CRI-O finds the names of pods
// and containers by these labels.
func (p *probe) tryCreate(in *pod, config *runtimeapi.ContainerConfig) (string, error) {
	for _, key := range []string{labelPodName, labelPodNamespace, labelPodUID} {
		config.Labels[key] = in.config.GetLabels()[key]
	}
	config.Labels[labelContainerName] = config.GetMetadata().GetName()
	r, err := p.rt.CreateContainer(p.call(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: in.id, Config: config, SandboxConfig: in.config,
	})
	return r.GetContainerId(), err
}

func (p *probe) create(in *pod, name string, w Workload) string {
	p.Helper()
	id, err := p.tryCreate(in, p.containerConfig(name, w, 0))
	p.ok(err, "podrunner: cannot create a container")
	return id
}

func (p *probe) tryStart(id string) error {
	_, err := p.rt.StartContainer(p.call(), &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (p *probe) start(id string) {
	p.Helper()
	p.ok(p.tryStart(id), "podrunner: cannot start a container")
}

// launch creates and starts a container, and waits until it is ready.
func (p *probe) launch(in *pod, name string, w Workload) string {
	p.Helper()
	id := p.create(in, name, w)
	p.start(id)
	p.until("prober, podworker: the output of a container is missing in its log", func() (bool, string) {
		text, err := os.ReadFile(filepath.Join(in.config.GetLogDirectory(), name+"_0.log"))
		return strings.Contains(string(text), w.Ready), fmt.Sprintf("%q, %v", text, err)
	})
	return id
}

func (p *probe) tryStop(id string, grace time.Duration) error {
	return p.tryStopIn(p.callFor(grace), id, grace)
}

func (p *probe) tryStopIn(ctx context.Context, id string, grace time.Duration) error {
	_, err := p.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: id, Timeout: int64(grace / time.Second),
	})
	return err
}

func (p *probe) stop(id string, grace time.Duration) {
	p.Helper()
	p.ok(p.tryStop(id, grace), "podworker: StopContainer fails, so the pod never terminates")
}

func (p *probe) tryRemove(id string) error {
	_, err := p.rt.RemoveContainer(p.call(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

func (p *probe) tryStatus(id string) (*runtimeapi.ContainerStatus, error) {
	r, err := p.rt.ContainerStatus(p.call(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return r.GetStatus(), err
}

func (p *probe) status(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	st, err := p.tryStatus(id)
	p.ok(err, "pleg: cannot get the status of an existing container")
	p.must(st != nil, "pleg: an existing container has no status", "nil")
	return st
}

// ended waits until a container has exited, and returns its status.
func (p *probe) ended(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	var st *runtimeapi.ContainerStatus
	p.until("pleg: never detects that a container exited, so it is not restarted", func() (bool, string) {
		st = p.status(id)
		return exited(st), st.GetState().String()
	})
	return st
}

func (p *probe) list(filter *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	p.Helper()
	r, err := p.rt.ListContainers(p.call(), &runtimeapi.ListContainersRequest{Filter: filter})
	p.ok(err, "pleg: cannot list containers, so it detects no changes")
	return r.GetContainers()
}

func exited(st *runtimeapi.ContainerStatus) bool {
	return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}
