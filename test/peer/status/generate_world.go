package status

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// runtimeName is the name of the runtime, the scheme of container IDs.
const runtimeName = "containerd"

// generateWorld is a history of one pod: the state of the runtime, the probes, the API server
// and the other parts of the agent in each turn.
type generateWorld struct {
	Pod     *corev1.Pod // the API object; its resources may not be allocated yet
	NodeIPs []string
	RRO     bool   // the runtime supports recursive read-only mounts
	Files   string // directory of the pods' termination messages and logs, as in the kubelet
	Steps   []generateStep

	Turns []generateTurn `json:"-"` // the input of each step on the kubelet's side
}

// generateTurn is the input of a step.
type generateTurn struct {
	Pod    *corev1.Pod      // the API object
	Before corev1.PodStatus // the last reported status, or that of the API server
	Known  bool             // this agent reported Before
	Now    time.Time
	Began  time.Time // of the agent

	given *input                 // cache for rules
	names map[string]bool        // names of the applicable changes to the input
	alone map[string]int         // the rule that explains a fact without a change, or -1
	facts map[string]judge.Facts // the kubelet's results for changed inputs, by the names of the changes
}

// generateStep is one turn. Its changes of the pod also apply to later turns.
type generateStep struct {
	Pause time.Duration // before the turn
	// Restart creates a new agent, which has only the API server's status.
	Restart bool
	// Sync copies the last reported status to the API server.
	Sync bool
	// Delete sets the deletion timestamp. Edit increments the generation.
	Delete, Edit bool
	// Evict is an eviction before the turn. Terminate is the last call of the termination.
	Evict, Terminate bool
	// Terminal is set if the pod has a terminal phase.
	Terminal bool
	// Foreign is conditions, and APIPhase a phase, that other clients wrote.
	Foreign  []corev1.PodCondition
	APIPhase corev1.PodPhase

	IPs        []string
	Sandboxes  []*runtimeapi.PodSandboxStatus // newest first
	Containers []runtimeContainer             // newest first
	Waiting    map[string]corev1.ContainerStateWaiting
	Probes     map[string]probeFacts
	// Workers is set if probing has started: not before an agent's first turn.
	Workers bool
	// Allocated is the allocated resources if they differ from the pod's spec. Actuated is
	// the last enforced resources.
	Allocated, Actuated map[string]corev1.ResourceRequirements
	Devices             map[string][]corev1.ResourceStatus
}

// probeFacts is the probe results of a running container: "" means no result yet.
type probeFacts struct{ Startup, Readiness string }

type runtimeContainer struct {
	Sandbox string
	Status  *runtimeapi.ContainerStatus
}

func (w *generateWorld) String() string {
	text, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// history draws the steps.
type history struct {
	*judge.Draw
	w       *generateWorld
	clock   int64 // seconds since the bubble's beginning
	ids     int
	attempt uint32

	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []runtimeContainer
	probed     map[string]probeFacts // by container ID; lost with the agent
	step       generateStep
}

func drawGenerateWorld(files string) func(d *judge.Draw) *generateWorld {
	return func(d *judge.Draw) *generateWorld {
		h := &history{Draw: d, w: &generateWorld{Pod: drawPod(d), Files: files, RRO: d.Chance(30)}}
		h.w.NodeIPs = judge.Pick(d, []string{"10.0.0.1"}, []string{"10.0.0.1", "fd00::1"}, []string{"fd00::1"}, []string{"fd00::1", "10.0.0.1"}, nil)
		h.drawAPIStatus()
		for range d.Between(1, 8) {
			h.turn()
		}
		return h.w
	}
}

// drawAPIStatus draws the pod's status in the API server before its first turn.
func (h *history) drawAPIStatus() {
	h.w.Pod.Status.Phase = corev1.PodPending
	if h.Chance(15) {
		h.w.Pod.Status.QOSClass = judge.Pick(h.Draw, corev1.PodQOSBurstable, corev1.PodQOSBestEffort)
	}
	if h.Chance(30) {
		h.w.Pod.Status = drawStatus(h.Draw, h.w.Pod, false)
	}
}

func (h *history) turn() {
	h.step = generateStep{Pause: time.Duration(h.Between(0, 20)) * time.Second}
	h.clock += int64(h.step.Pause / time.Second)
	h.events()
	h.changeSandboxes()
	for _, c := range allContainers(&h.w.Pod.Spec) {
		h.changeContainer(&c)
	}
	h.know()
	h.step.Sandboxes = cloneAll(h.sandboxes)
	for _, c := range h.containers {
		h.step.Containers = append(h.step.Containers, runtimeContainer{c.Sandbox, clone(c.Status)})
	}
	slices.Reverse(h.step.Sandboxes)
	slices.Reverse(h.step.Containers)
	h.w.Steps = append(h.w.Steps, h.step)
}

// events draws the events of the pod and the agent.
func (h *history) events() {
	s := &h.step
	s.Sync = !h.Chance(30)
	s.Restart = h.Chance(10)
	s.Delete, s.Edit, s.Evict = h.Chance(6), h.Chance(6), h.Chance(4)
	s.Terminal = h.Chance(10)
	s.Terminate = s.Terminal && h.Chance(40)
	s.APIPhase = judge.Pick(h.Draw, "", corev1.PodFailed, corev1.PodSucceeded)
	if !h.Chance(4) {
		s.APIPhase = ""
	}
	for i := range 2 {
		if h.Chance(40) {
			s.Foreign = append(s.Foreign, corev1.PodCondition{
				Type: gate(i), Status: judge.Pick(h.Draw, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown), Reason: "Gate",
			})
		}
	}
	if h.Chance(5) {
		s.Foreign = append(s.Foreign, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "evicted",
		})
	}
}

func (h *history) changeSandboxes() {
	last := func() *runtimeapi.PodSandboxStatus { return h.sandboxes[len(h.sandboxes)-1] }
	action := h.Int(20)
	switch {
	case len(h.sandboxes) == 0 && action < 18, action == 17:
		h.ids++
		mode := runtimeapi.NamespaceMode_POD
		if h.w.Pod.Spec.HostNetwork != h.Chance(4) {
			mode = runtimeapi.NamespaceMode_NODE
		}
		if len(h.sandboxes) > 0 && !h.Chance(20) {
			last().State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		box := &runtimeapi.PodSandboxStatus{
			Id: fmt.Sprintf("sandbox-%d", h.ids), CreatedAt: h.now(), State: runtimeapi.PodSandboxState_SANDBOX_READY,
			Metadata: &runtimeapi.PodSandboxMetadata{Name: podName, Namespace: namespace, Uid: string(podUID), Attempt: h.attempt},
			Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.0.1"},
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
				Options: &runtimeapi.NamespaceOption{Network: mode},
			}},
		}
		h.attempt++
		h.sandboxes = append(h.sandboxes, box)
	case len(h.sandboxes) == 0:
	case action == 16:
		last().State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	case action == 18:
		last().Network = judge.Pick(h.Draw, nil, &runtimeapi.PodSandboxNetworkStatus{})
	case action == 19:
		h.sandboxes = h.sandboxes[1:]
	}
	if h.w.Pod.Spec.HostNetwork && h.Chance(70) {
		return
	}
	h.step.IPs = judge.Pick(h.Draw, []string{"10.1.0.1"}, nil, []string{"10.1.0.1", "fd01::1"}, []string{"fd01::1", "10.1.0.1"},
		[]string{"10.1.0.1", "10.1.0.2", "fd01::0:1", "fd01::2"}, []string{"::ffff:10.1.0.1"}, []string{"fd01::1"}, []string{"010.1.0.001"})
}

func (h *history) now() int64 {
	h.clock++ // the runtime's objects have different times
	return (946684800 + h.clock) * int64(time.Second)
}

// know draws the agent's state besides the runtime's state.
func (h *history) know() {
	s := &h.step
	s.Waiting, s.Probes = map[string]corev1.ContainerStateWaiting{}, map[string]probeFacts{}
	s.Allocated, s.Actuated = map[string]corev1.ResourceRequirements{}, map[string]corev1.ResourceRequirements{}
	s.Devices = map[string][]corev1.ResourceStatus{}
	s.Workers = !s.Restart && len(h.w.Steps) > 0
	if !s.Workers {
		h.probed = map[string]probeFacts{}
	}
	for _, c := range allContainers(&h.w.Pod.Spec) {
		if h.Chance(20) {
			s.Waiting[c.Name] = judge.Pick(h.Draw, corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"},
				corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}, corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "x"})
		}
		if newest := newestOf(h.containers, c.Name); newest != nil {
			if s.Workers {
				h.probed[newest.Id] = probeFacts{h.probe(h.probed[newest.Id].Startup), h.probe(h.probed[newest.Id].Readiness)}
			}
			s.Probes[c.Name] = h.probed[newest.Id]
		}
		if c.Resources.Requests != nil && h.Chance(15) {
			s.Allocated[c.Name] = doubled(c.Resources) // a resize keeps the QoS class
		}
		if h.Chance(30) {
			s.Actuated[c.Name] = judge.Pick(h.Draw, c.Resources, doubled(c.Resources))
		}
		if h.Chance(10) {
			s.Devices[c.Name] = []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{{
				ResourceID: "gpu-0", Health: judge.Pick(h.Draw, corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy),
			}}}}
		}
	}
}

// probe draws the next result of a probe. A probe that has a result always has one later.
func (h *history) probe(before string) string {
	if before == "" {
		return judge.Pick(h.Draw, "passed", "", "failed")
	}
	if h.Chance(20) {
		return judge.Pick(h.Draw, "passed", "failed")
	}
	return before
}

// newestOf returns the newest container of a name in a list, oldest first.
func newestOf(list []runtimeContainer, name string) (newest *runtimeapi.ContainerStatus) {
	for _, c := range list {
		if c.Status.Metadata.Name == name {
			newest = c.Status
		}
	}
	return newest
}

// changeContainer draws a change of a container in the runtime.
func (h *history) changeContainer(c *corev1.Container) {
	mine := slices.DeleteFunc(slices.Clone(h.containers), func(r runtimeContainer) bool { return r.Status.Metadata.Name != c.Name })
	var newest *runtimeapi.ContainerStatus
	if len(mine) > 0 {
		newest = mine[len(mine)-1].Status
	}
	action := h.Int(24)
	switch {
	case action < 4 && newest == nil && len(h.sandboxes) > 0, action == 4 && len(h.sandboxes) > 0:
		h.start(c, mine)
	case newest == nil:
	case action < 9:
		h.exit(c, newest)
	case action < 11 && newest.State != runtimeapi.ContainerState_CONTAINER_EXITED:
		newest.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	case action == 11:
		h.remove(func(r runtimeContainer) bool { return r.Status.Metadata.Name == c.Name })
	case action == 12:
		h.remove(func(r runtimeContainer) bool { return r.Status == mine[0].Status })
	case action == 13:
		h.remove(func(r runtimeContainer) bool { return r.Status == newest })
	case action < 17 && (newest.State == runtimeapi.ContainerState_CONTAINER_CREATED || newest.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN && newest.StartedAt != 0):
		if newest.State = runtimeapi.ContainerState_CONTAINER_RUNNING; newest.StartedAt == 0 {
			newest.StartedAt = h.now()
		}
	case action < 20:
		newest.Resources = h.drawLinuxResources()
	}
}

func (h *history) remove(which func(runtimeContainer) bool) {
	h.containers = slices.DeleteFunc(h.containers, which)
}

func (h *history) start(c *corev1.Container, mine []runtimeContainer) {
	h.ids++
	attempt := uint32(len(mine))
	if len(mine) > 0 {
		attempt = mine[len(mine)-1].Status.Metadata.Attempt + 1
	}
	st := &runtimeapi.ContainerStatus{
		Id: fmt.Sprintf("container-%d", h.ids), Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: attempt}, CreatedAt: h.now(),
		State:    judge.Pick(h.Draw, runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING),
		Image:    &runtimeapi.ImageSpec{Image: judge.Pick(h.Draw, c.Image, "docker.io/"+c.Image)},
		ImageRef: "repo@sha256:1", ImageId: judge.Pick(h.Draw, "", "sha256:2"),
		Labels: map[string]string{
			"io.kubernetes.container.name": c.Name, "io.kubernetes.pod.name": podName,
			"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": string(podUID),
		},
		Annotations: map[string]string{
			"io.kubernetes.container.hash": "1", "io.kubernetes.container.restartCount": strconv.Itoa(int(attempt)),
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": string(c.TerminationMessagePolicy),
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		Resources: h.drawLinuxResources(),
	}
	switch h.Int(15) {
	case 1:
		st.Image.UserSpecifiedImage = c.Image
	case 2:
		st.Image.Image = ""
	case 3:
		st.ImageRef = ""
	}
	if st.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		st.StartedAt = h.now()
	}
	if h.Chance(20) {
		st.User = judge.Pick(h.Draw, &runtimeapi.ContainerUser{}, &runtimeapi.ContainerUser{
			Linux: &runtimeapi.LinuxContainerUser{Uid: 1000, Gid: 2000, SupplementalGroups: []int64{3000, 1}},
		})
	}
	for _, m := range c.VolumeMounts {
		st.Mounts = append(st.Mounts, &runtimeapi.Mount{ContainerPath: m.MountPath, Readonly: m.ReadOnly, RecursiveReadOnly: m.ReadOnly && h.Chance(40)})
	}
	if name := judge.Pick(h.Draw, "", "short", "empty", "long", "runes", "missing"); name != "" && h.Chance(30) {
		st.Mounts = append(st.Mounts, &runtimeapi.Mount{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(h.w.Files, "pods", string(podUID), "containers", c.Name, name)})
	}
	st.LogPath = filepath.Join(h.w.Files, "logs", strings.Join([]string{namespace, podName, string(podUID)}, "_"), c.Name, judge.Pick(h.Draw, "log", "missing"))
	h.containers = append(h.containers, runtimeContainer{h.sandboxes[len(h.sandboxes)-1].Id, st})
	for _, before := range mine {
		if s := before.Status; s.State == runtimeapi.ContainerState_CONTAINER_RUNNING && !h.Chance(5) {
			h.exit(c, s)
		}
	}
}

// exit ends a container, which may not have started.
func (h *history) exit(c *corev1.Container, st *runtimeapi.ContainerStatus) {
	if st.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	st.State, st.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, h.now()
	st.ExitCode = judge.Pick[int32](h.Draw, 0, 1, 42, 137)
	st.Reason = judge.Pick(h.Draw, "Completed", "Error", "OOMKilled", "ContainerCannotRun")
	st.Message = judge.Pick(h.Draw, "", "it failed")
	if st.StartedAt == 0 && h.Chance(50) {
		st.ExitCode, st.Reason = 128, "StartError"
		st.Message = judge.Pick(h.Draw, "failed to start: context canceled", "failed to start: no such file")
	}
}

func (h *history) drawLinuxResources() *runtimeapi.ContainerResources {
	if !h.Chance(60) {
		return judge.Pick(h.Draw, nil, &runtimeapi.ContainerResources{})
	}
	return &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
		CpuPeriod: judge.Pick[int64](h.Draw, 100000, 0, 50000), CpuQuota: judge.Pick[int64](h.Draw, 25000, 0, -1, 1000, 500, 333),
		CpuShares: judge.Pick[int64](h.Draw, 102, 0, 2, 1, 256, 1024, 103), MemoryLimitInBytes: judge.Pick[int64](h.Draw, 128<<20, 0, 64<<20, -1),
	}}
}

// doubled returns twice the resources.
func doubled(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	r = *r.DeepCopy()
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, q := range list {
			q.Add(q)
			list[name] = q
		}
	}
	return r
}

func at(seconds int64) metav1.Time { return metav1.Unix(946684800+seconds, 0) }
