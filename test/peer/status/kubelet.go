package status

import (
	"context"
	"net"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	kubelettypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"
)

//go:linkname generateAPIPodStatus k8s.io/kubernetes/pkg/kubelet.(*Kubelet).generateAPIPodStatus
func generateAPIPodStatus(*kubelet.Kubelet, context.Context, *corev1.Pod, *container.PodStatus, bool) corev1.PodStatus

//go:linkname getPhase k8s.io/kubernetes/pkg/kubelet.getPhase
func getPhase(klog.Logger, *corev1.Pod, []corev1.ContainerStatus, bool, bool) corev1.PodPhase

//go:linkname mergePodStatus k8s.io/kubernetes/pkg/kubelet/status.mergePodStatus
func mergePodStatus(*corev1.Pod, corev1.PodStatus, corev1.PodStatus, bool) corev1.PodStatus

//go:linkname normalizeStatus k8s.io/kubernetes/pkg/kubelet/status.normalizeStatus
func normalizeStatus(*corev1.Pod, *corev1.PodStatus) *corev1.PodStatus

//go:linkname updateLastTransitionTime k8s.io/kubernetes/pkg/kubelet/status.updateLastTransitionTime
func updateLastTransitionTime(*corev1.PodStatus, *corev1.PodStatus, corev1.PodConditionType)

//go:linkname isPodStatusByKubeletEqual k8s.io/kubernetes/pkg/kubelet/status.isPodStatusByKubeletEqual
func isPodStatusByKubeletEqual(*corev1.PodStatus, *corev1.PodStatus) bool

//go:linkname checkContainerStateTransition k8s.io/kubernetes/pkg/kubelet/status.checkContainerStateTransition
func checkContainerStateTransition(*corev1.PodStatus, *corev1.PodStatus, *corev1.PodSpec) error

//go:linkname syncBatch k8s.io/kubernetes/pkg/kubelet/status.(*manager).syncBatch
func syncBatch(unsafe.Pointer, context.Context, bool) int

// pointer returns the pointer in an interface.
func pointer(v any) unsafe.Pointer { return reflect.ValueOf(v).UnsafePointer() }

// set assigns to a field, exported or not, of the struct to which v points.
func set(v any, field string, value any) {
	f := reflect.ValueOf(v).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// runtimeService returns the runtime's state in a step.
type runtimeService struct {
	cri.RuntimeService
	step *generateStep
}

func (*runtimeService) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: runtimeName}, nil
}

func (r *runtimeService) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	for _, s := range r.step.Sandboxes {
		if s.Id == id {
			return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
		}
	}
	return nil, net.ErrClosed
}

func (r *runtimeService) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	for _, c := range r.step.Containers {
		if c.Status.Id == id {
			return &runtimeapi.ContainerStatusResponse{Status: c.Status}, nil
		}
	}
	return nil, net.ErrClosed
}

// kubeRuntime is the kubelet's view of the runtime.
type kubeRuntime struct {
	kuberuntime.KubeGenericRuntime
	service *runtimeService
}

// newKubeRuntime returns a kubelet's runtime manager. It is created once, because its
// constructor writes to a directory.
func newKubeRuntime(t *testing.T) *kubeRuntime {
	t.Helper()
	service := &runtimeService{}
	k, _, err := kuberuntime.NewKubeGenericRuntimeManager(t.Context(), &record.FakeRecorder{}, nil, nil, nil, t.TempDir(), "", nil, nil, 10,
		nil, nil, nil, nil, false, nil, 0, 0, "NeverVerify", nil, "", "", nil, false, metav1.Duration{}, service, nil,
		cm.NewStubContainerManager(), nil, nil, false, "", nil, 0, "", nil, noop.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	return &kubeRuntime{k, service}
}

// look returns the kubelet's view of the pod's runtime state.
func (k *kubeRuntime) look(step *generateStep) *container.PodStatus {
	actuated := map[string]corev1.ResourceRequirements{}
	for name, r := range step.Actuated {
		actuated[name] = *r.DeepCopy()
	}
	set(k.KubeGenericRuntime, "actuatedState", state.NewStateMemory(state.PodResourceInfoMap{podUID: {ContainerResources: actuated}}))
	k.service.step = step
	pod := &container.Pod{ID: podUID, Name: podName, Namespace: namespace}
	for _, s := range step.Sandboxes {
		pod.Sandboxes = append(pod.Sandboxes, &container.Container{ID: container.ContainerID{Type: runtimeName, ID: s.Id}})
	}
	for _, c := range step.Containers {
		pod.Containers = append(pod.Containers, &container.Container{
			ID: container.ContainerID{Type: runtimeName, ID: c.Status.Id}, PodSandboxID: c.Sandbox,
		})
	}
	ps, err := k.GetPodStatus(context.Background(), pod)
	if err != nil { // the fake runtime never fails
		panic(err)
	}
	ps.IPs = step.IPs // as the PLEG has them
	return ps
}

// devices is a container manager that knows the health of devices.
type devices struct {
	cm.ContainerManager
	step *generateStep
}

func (d *devices) UpdateAllocatedResourcesStatus(_ *corev1.Pod, s *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			list[i].AllocatedResourcesStatus = nil
			for _, r := range d.step.Devices[list[i].Name] {
				list[i].AllocatedResourcesStatus = append(list[i].AllocatedResourcesStatus, *r.DeepCopy())
			}
		}
	}
}

// probeResults are the results of one kind of probe.
type probeResults struct {
	results.Manager
	known map[container.ContainerID]results.Result
}

func (p *probeResults) Get(id container.ContainerID) (results.Result, bool) {
	r, ok := p.known[id]
	return r, ok
}

func (p *probeResults) set(id, result string) {
	switch result {
	case "passed":
		p.known[container.ParseContainerID(id)] = results.Success
	case "failed":
		p.known[container.ParseContainerID(id)] = results.Failure
	}
}

// pods is the kubelet's pod manager: it knows one pod, which has no mirror.
type pods struct{ pod *corev1.Pod }

func (p *pods) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	return p.pod, p.pod != nil && p.pod.UID == uid
}
func (*pods) GetMirrorPodByPod(*corev1.Pod) (*corev1.Pod, bool) { return nil, false }
func (*pods) TranslatePodUID(uid types.UID) kubelettypes.ResolvedPodUID {
	return kubelettypes.ResolvedPodUID(uid)
}

func (*pods) GetUIDTranslations() (map[kubelettypes.ResolvedPodUID]kubelettypes.MirrorPodUID, map[kubelettypes.MirrorPodUID]kubelettypes.ResolvedPodUID) {
	return nil, nil
}
func (*pods) PodCouldHaveRunningContainers(*corev1.Pod) bool { return false }
func (*pods) RecordStatusUpdated(*corev1.Pod)                {}
func (*pods) DeletePodStartupState(types.UID)                {}

// node is a lister of one node, whose addresses are the NodeIPs of a generateWorld.
type node struct {
	corelisters.NodeLister
	ips []string
}

func (n node) Get(string) (*corev1.Node, error) {
	node := &corev1.Node{}
	for _, ip := range n.ips {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return node, nil
}

// agent is a kubelet, as far as it generates statuses. Each restart makes a new one.
type agent struct {
	began    time.Time
	kubelet  *kubelet.Kubelet
	statuses kubeletstatus.Manager
	pods     *pods
	devices  *devices
	prober   prober.Manager
	startup  *probeResults
	ready    *probeResults
}

func newAgent(w *generateWorld) *agent {
	a := &agent{
		began: time.Now(), kubelet: &kubelet.Kubelet{}, pods: &pods{w.Pod}, devices: &devices{ContainerManager: cm.NewStubContainerManager()},
		startup: &probeResults{}, ready: &probeResults{},
	}
	a.statuses = kubeletstatus.NewManager(nil, a.pods, a.pods, a.pods)
	a.prober = prober.NewManager(a.statuses, nil, a.ready, a.startup, nil, &record.FakeRecorder{})
	k := a.kubelet
	set(k, "statusManager", a.statuses)
	set(k, "probeManager", a.prober)
	set(k, "containerManager", a.devices)
	set(k, "reasonCache", kubelet.NewReasonCache())
	set(k, "recorder", &record.FakeRecorder{})
	set(k, "kubeClient", &kubernetes.Clientset{})
	set(k, "nodeLister", node{ips: w.NodeIPs})
	set(k, "runtimeClassManager", &runtimeclass.Manager{})
	set(k, "clock", clock.RealClock{})
	runtimeState := reflect.New(reflect.TypeFor[kubelet.Kubelet]()).Elem().FieldByName("runtimeState").Type().Elem()
	state := reflect.New(runtimeState).Interface()
	set(state, "rtHandlers", []container.RuntimeHandler{{SupportsRecursiveReadOnlyMounts: w.RRO}})
	set(k, "runtimeState", state)
	var ips []net.IP
	for _, ip := range w.NodeIPs {
		ips = append(ips, net.ParseIP(ip))
	}
	set(k, "nodeIPs", ips)
	return a
}

// know sets the kubelet's state besides the runtime's state.
func (a *agent) know(pod *corev1.Pod, step *generateStep) {
	a.devices.step = step
	a.pods.pod = pod
	cache := kubelet.NewReasonCache()
	set(a.kubelet, "reasonCache", cache)
	for name, why := range step.Waiting {
		cache.Update(pod.UID, container.PodSyncResult{SyncResults: []*container.SyncResult{{
			Action: container.StartContainer, Target: name, Error: reason(why.Reason), Message: why.Message,
		}}})
	}
	a.startup.known, a.ready.known = map[container.ContainerID]results.Result{}, map[container.ContainerID]results.Result{}
	workers := a.workers()
	for _, c := range allContainers(&pod.Spec) {
		facts := step.Probes[c.Name]
		for _, seen := range step.Containers {
			if seen.Status.Metadata.Name != c.Name || !step.Workers || seen.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
			id := runtimeName + "://" + seen.Status.Id
			if c.StartupProbe != nil {
				a.startup.set(id, facts.Startup)
			}
			if c.ReadinessProbe != nil {
				a.ready.set(id, facts.Readiness)
			}
			break
		}
		if step.Workers && c.StartupProbe != nil {
			workers.add(c.Name, 2)
		}
		if step.Workers && c.ReadinessProbe != nil {
			workers.add(c.Name, 1)
		}
	}
}

type reason string

func (r reason) Error() string { return string(r) }

// probeWorkers is the prober's map of workers.
type probeWorkers struct{ reflect.Value }

func (a *agent) workers() probeWorkers {
	f := reflect.ValueOf(a.prober).Elem().FieldByName("workers")
	return probeWorkers{reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()}
}

// add adds a worker that does nothing.
func (w probeWorkers) add(name string, kind int64) {
	key := reflect.New(w.Type().Key())
	set(key.Interface(), "podUID", podUID)
	set(key.Interface(), "containerName", name)
	f := key.Elem().FieldByName("probeType")
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().SetInt(kind)
	w.SetMapIndex(key.Elem(), reflect.New(w.Type().Elem().Elem()))
}
