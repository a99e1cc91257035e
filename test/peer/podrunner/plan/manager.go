package plan

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/stretchr/testify/require"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientrecord "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
)

// A kubelet is the kubelet's runtime manager on a replaceable node. One kubelet serves all
// scenarios.
type kubelet struct {
	kuberuntime.KubeGenericRuntime
	ctx  context.Context
	logs string
	// written is the restart counts according to the log directory.
	written map[string]int
	*node
	actuated state.State
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	dir := t.TempDir()
	k := &kubelet{ctx: klog.NewContext(context.WithoutCancel(t.Context()), logr.Discard()), logs: filepath.Join(dir, "logs"), written: map[string]int{}, node: &node{}}
	runtime, _, err := kuberuntime.NewKubeGenericRuntimeManager(
		k.ctx, &recorder{k: k}, liveness{k: k}, nil, startup{k: k}, dir, k.logs, &cadvisorapi.MachineInfo{MemoryCapacity: 32 << 30},
		podStates{}, 110, system{}, &helper{k: k}, nil, flowcontrol.NewBackOff(time.Second, time.Minute), false, nil, 0, 0,
		string(kubeletconfig.NeverVerify), nil, "", "", nil, true, metav1.Duration{Duration: 100 * time.Millisecond},
		k.node, imageService{}, &containerManager{FakeContainerManager: cm.NewFakeContainerManager(), k: k}, logs.NewStubContainerLogManager(), nil, false, "",
		func() corev1.ResourceList { return nil }, 0.9, kubeletconfig.NoneMemoryReservationPolicy, nil, nooptrace.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	k.KubeGenericRuntime = runtime
	k.replace("imagePuller", puller{})
	return k
}

// replace sets a field of the manager that the manager would otherwise read from disk.
func (k *kubelet) replace(field string, value any) {
	f := reflect.ValueOf(k.KubeGenericRuntime).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// use makes s the state of the runtime and of the manager. It returns a record of the
// following actions.
func (k *kubelet) use(t *testing.T, s *State, fails []string) *record {
	t.Helper()
	k.s, k.fails, k.log = s, fails, newRecord()
	k.actuated = state.NewStateMemory(nil)
	for _, c := range s.Containers {
		if s.newest(c.Name) == c {
			require.NoError(t, k.actuated.SetContainerResources(s.Pod.UID, c.Name, *c.Has.DeepCopy()))
		}
	}
	if s.PodHas != nil {
		require.NoError(t, k.actuated.SetPodLevelResources(s.Pod.UID, s.PodHas.DeepCopy()))
	}
	k.replace("actuatedState", k.actuated)
	for _, name := range s.names() {
		if s.newest(name) == nil {
			k.writeLog(t, name, s.Logs[name])
		}
	}
	return k.log
}

// writeLog creates a log file so that the next restart count is attempt.
func (k *kubelet) writeLog(t *testing.T, name string, attempt int) {
	t.Helper()
	if k.written[name] == attempt {
		return
	}
	k.written[name] = attempt
	folder := filepath.Join(k.logs, "ns_pod_"+string(podUID), name)
	require.NoError(t, os.RemoveAll(folder))
	if attempt > 0 {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, strconv.Itoa(attempt-1)+".log"), nil, 0o600))
	}
}

// recorder records the events about containers that are killed.
type recorder struct {
	clientrecord.EventRecorderLogger
	k *kubelet
}

func (r *recorder) WithLogger(klog.Logger) clientrecord.EventRecorderLogger { return r }

func (r *recorder) Event(object runtime.Object, _, reason, message string) {
	ref, isRef := object.(*corev1.ObjectReference)
	if !isRef || reason != "Killing" {
		return
	}
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	r.k.log.message[containerOf(ref.FieldPath)] = message
}

func (r *recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Eventf(object, kind, reason, format, args...)
}

// containerOf returns the container's name in spec.containers{name}.
func containerOf(path string) string {
	_, name, _ := strings.Cut(path, "{")
	return strings.TrimSuffix(name, "}")
}

// liveness and startup are probe results.
type liveness struct {
	results.Manager
	k *kubelet
}

type startup struct {
	results.Manager
	k *kubelet
}

func (l liveness) Get(id container.ContainerID) (results.Result, bool) {
	return result(l.k.s.container(id.ID).Liveness)
}

func (l startup) Get(id container.ContainerID) (results.Result, bool) {
	return result(l.k.s.container(id.ID).Startup)
}

func result(f Found) (results.Result, bool) {
	switch f {
	case Succeeded:
		return results.Success, true
	case Failed:
		return results.Failure, true
	case Unknown:
		return results.Unknown, true
	default:
		return results.Unknown, false
	}
}

type podStates struct{}

func (podStates) IsPodTerminationRequested(types.UID) bool { return false }
func (podStates) ShouldPodContentBeRemoved(types.UID) bool { return false }
func (podStates) ShouldPodRuntimeBeRemoved(types.UID) bool { return false }

// helper is the other methods of the kubelet.
type helper struct {
	container.RuntimeHelper
	k *kubelet
}

func (h *helper) GenerateRunContainerOptions(context.Context, *corev1.Pod, *corev1.Container, string, []string, container.ImageVolumes) (*container.RunContainerOptions, func(), error) {
	return &container.RunContainerOptions{}, nil, nil
}

func (h *helper) GetPodDNS(context.Context, *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	return &runtimeapi.DNSConfig{}, nil
}

func (h *helper) GetPodCgroupParent(*corev1.Pod) string { return "" }

func (h *helper) GetPodDir(types.UID) string { return "/pod" }

func (h *helper) GeneratePodHostNameAndDomain(klog.Logger, *corev1.Pod) (string, string, error) {
	return "pod", "", nil
}

func (h *helper) GetExtraSupplementalGroupsForPod(*corev1.Pod) []int64 { return nil }

func (h *helper) GetOrCreateUserNamespaceMappings(klog.Logger, *corev1.Pod, string) (*runtimeapi.UserNamespace, error) {
	return nil, nil
}

func (h *helper) PrepareDynamicResources(context.Context, *corev1.Pod) error { return nil }

func (h *helper) RequestPodReinspect(types.UID) {}

func (h *helper) OnPodSandboxReady(context.Context, *corev1.Pod) error { return nil }

func (h *helper) PodCPUAndMemoryStats(context.Context, *corev1.Pod, *container.PodStatus) (*statsapi.PodStats, error) {
	used := uint64(h.k.s.Used)
	stats := &statsapi.PodStats{Memory: &statsapi.MemoryStats{UsageBytes: &used}}
	for _, c := range h.k.s.Containers {
		stats.Containers = append(stats.Containers, statsapi.ContainerStats{Name: c.Name, Memory: &statsapi.MemoryStats{UsageBytes: &used}})
	}
	return stats, nil
}

// system is a file system without files.
type system struct{ container.OSInterface }

func (system) MkdirAll(string, os.FileMode) error { return nil }

func (system) Stat(string) (os.FileInfo, error) { return nil, os.ErrNotExist }

func (system) Remove(string) error { return nil }

// puller has every image.
type puller struct{ images.ImageManager }

func (puller) EnsureImageExists(_ context.Context, _ *corev1.ObjectReference, _ *corev1.Pod, image string, _ []corev1.Secret, _ *runtimeapi.PodSandboxConfig, _ string, _ corev1.PullPolicy) (string, string, error) {
	return image, "", nil
}

type imageService struct{ cri.ImageManagerService }

func (imageService) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "image"}}, nil
}

// containerManager has the cgroups of pods.
type containerManager struct {
	*cm.FakeContainerManager
	k *kubelet
}

func (m *containerManager) NewPodContainerManager() cm.PodContainerManager {
	return &podCgroups{PodContainerManager: m.PodContainerManager, k: m.k}
}

type podCgroups struct {
	cm.PodContainerManager
	k *kubelet
}

func (p *podCgroups) GetPodCgroupConfig(_ *corev1.Pod, name corev1.ResourceName) (*cm.ResourceConfig, error) {
	now := p.k.s.Cgroup
	if name == corev1.ResourceMemory {
		return &cm.ResourceConfig{Memory: new(now.GetMemoryLimitInBytes())}, nil
	}
	return &cm.ResourceConfig{
		CPUShares: new(uint64(now.GetCpuShares())), CPUQuota: new(now.GetCpuQuota()), CPUPeriod: new(uint64(now.GetCpuPeriod())),
	}, nil
}

func (p *podCgroups) SetPodCgroupConfig(_ klog.Logger, _ *corev1.Pod, to *cm.ResourceConfig) error {
	res := &runtimeapi.LinuxContainerResources{}
	if to.Memory != nil {
		res.MemoryLimitInBytes = *to.Memory
	}
	if to.CPUShares != nil {
		res.CpuShares = int64(*to.CPUShares)
	}
	if to.CPUQuota != nil {
		res.CpuQuota = *to.CPUQuota
	}
	if to.CPUPeriod != nil {
		res.CpuPeriod = int64(*to.CPUPeriod)
	}
	p.k.log.updates = append(p.k.log.updates, update{res: res})
	p.k.s.Cgroup = merged(p.k.s.Cgroup, res)
	return nil
}
