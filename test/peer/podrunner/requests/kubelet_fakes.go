package requests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/secret"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// helper is the Kubelet as the runtime manager's helper, without the methods that need more
// of it.
type helper struct{ *kubelet.Kubelet }

func (helper) PrepareDynamicResources(context.Context, *corev1.Pod) error   { return nil }
func (helper) UnprepareDynamicResources(context.Context, *corev1.Pod) error { return nil }
func (helper) RequestPodReinspect(types.UID)                                {}
func (helper) OnPodSandboxReady(context.Context, *corev1.Pod) error         { return nil }

// PodCPUAndMemoryStats returns a usage of zero.
func (helper) PodCPUAndMemoryStats(_ context.Context, pod *corev1.Pod, _ *kubecontainer.PodStatus) (*statsapi.PodStats, error) {
	stats := &statsapi.PodStats{Memory: &statsapi.MemoryStats{UsageBytes: new(uint64)}}
	for i := range pod.Spec.Containers {
		stats.Containers = append(stats.Containers, statsapi.ContainerStats{
			Name: pod.Spec.Containers[i].Name, Memory: &statsapi.MemoryStats{UsageBytes: new(uint64)},
		})
	}
	return stats, nil
}

// events records events.
type events struct{ facts *recorder }

func (e events) Event(_ runtime.Object, eventType, reason, message string) {
	e.facts.event(eventType, reason, message)
}

func (e events) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	e.facts.event(eventType, reason, fmt.Sprintf(format, args...))
}

func (e events) AnnotatedEventf(_ runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	e.facts.event(eventType, reason, fmt.Sprintf(format, args...))
}

func (e events) WithLogger(klog.Logger) record.EventRecorderLogger { return e }

// containers is the container manager: devices and cgroups of pods.
type containers struct {
	cm.ContainerManager
	world  *world
	cgroup *podCgroup
}

func (c containers) GetResources(_ context.Context, _ *corev1.Pod, container *corev1.Container) (*kubecontainer.RunContainerOptions, error) {
	opts := &kubecontainer.RunContainerOptions{}
	if container.Name != "main-1" {
		return opts, nil
	}
	for _, d := range c.world.Devices {
		if d.CDI != "" {
			opts.CDIDevices = append(opts.CDIDevices, kubecontainer.CDIDevice{Name: d.CDI})
			continue
		}
		opts.Devices = append(opts.Devices, kubecontainer.DeviceInfo{PathOnHost: d.Host, PathInContainer: d.Container, Permissions: d.Permissions})
	}
	return opts, nil
}

func (c containers) NewPodContainerManager() cm.PodContainerManager { return c.cgroup }
func (containers) PodHasExclusiveCPUs(*corev1.Pod) bool             { return false }
func (containers) ContainerHasExclusiveCPUs(*corev1.Pod, *corev1.Container) bool {
	return false
}

func (containers) InternalContainerLifecycle() cm.InternalContainerLifecycle {
	return cm.NewStubContainerManager().InternalContainerLifecycle()
}

// podCgroup is the pod's cgroup: the kubelet's own functions name it, its limits are in
// memory.
type podCgroup struct {
	cm.PodContainerManager
	naming struct { // the first fields of cm's podContainerManagerImpl
		qos     cm.QOSContainersInfo
		_       *cm.CgroupSubsystems
		manager cm.CgroupManager
	}
	memory int64
	shares uint64
	quota  int64
	period uint64
}

func newPodCgroup(w *world) *podCgroup {
	p := &podCgroup{}
	driver := "cgroupfs"
	if w.Node.SystemdCgroups {
		driver = "systemd"
	}
	root := cm.NewCgroupName(cm.RootCgroupName, "kubepods")
	p.naming.qos = cm.QOSContainersInfo{
		Guaranteed: root, Burstable: cm.NewCgroupName(root, "burstable"), BestEffort: cm.NewCgroupName(root, "besteffort"),
	}
	p.naming.manager = cm.NewCgroupManager(klog.Background(), &cm.CgroupSubsystems{}, driver)
	config := cm.ResourceConfigForPod(w.Pod, w.Node.CFSQuota, uint64(w.Node.CFSPeriod/time.Microsecond), false, kubeletconfig.NoneMemoryReservationPolicy)
	p.memory, p.shares, p.quota, p.period = math.MaxInt64, 2, -1, 100_000
	p.set(config)
	return p
}

func (p *podCgroup) set(c *cm.ResourceConfig) {
	if c.Memory != nil {
		p.memory = *c.Memory
	}
	if c.CPUShares != nil {
		p.shares = *c.CPUShares
	}
	if c.CPUQuota != nil {
		p.quota = *c.CPUQuota
	}
	if c.CPUPeriod != nil {
		p.period = *c.CPUPeriod
	}
}

func (p *podCgroup) GetPodContainerName(pod *corev1.Pod) (cm.CgroupName, string) {
	return podContainerName(unsafe.Pointer(&p.naming), pod)
}

func (p *podCgroup) GetPodCgroupConfig(_ *corev1.Pod, name corev1.ResourceName) (*cm.ResourceConfig, error) {
	if name == corev1.ResourceMemory {
		return &cm.ResourceConfig{Memory: new(p.memory)}, nil
	}
	return &cm.ResourceConfig{CPUShares: new(p.shares), CPUQuota: new(p.quota), CPUPeriod: new(p.period)}, nil
}

func (p *podCgroup) SetPodCgroupConfig(_ klog.Logger, _ *corev1.Pod, c *cm.ResourceConfig) error {
	p.set(c)
	return nil
}

func (p *podCgroup) GetPodCgroupMemoryUsage(*corev1.Pod) (uint64, error) { return 0, nil }

// mounted is a volume manager that has mounted all volumes of the pod.
type mounted struct {
	volumemanager.VolumeManager
	world *world
	root  string
}

func (m mounted) GetExtraSupplementalGroupsForPod(*corev1.Pod) []int64 { return nil }

func (m mounted) GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap {
	all := kubecontainer.VolumeMap{}
	for _, v := range m.world.Pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all[v.Name] = kubecontainer.VolumeInfo{BlockVolumeMapper: block{root: m.root}, ReadOnly: v.PersistentVolumeClaim.ReadOnly}
			continue
		}
		all[v.Name] = kubecontainer.VolumeInfo{Mounter: mount{path: volumePath(m.root, v.Name), volume: v}, InnerVolumeSpecName: v.Name}
	}
	return all
}

// volumePath is where a volume is on the node.
func volumePath(root, name string) string { return filepath.Join(root, "volumes", name) }

// blockDevice is the link to the device of a block volume.
func blockDevice(root string) string { return filepath.Join(root, "block", "link") }

// mount has the attributes that the kubelet's plugins give to a kind of volume.
type mount struct {
	volume.Mounter
	path   string
	volume corev1.Volume
}

func (m mount) GetPath() string { return m.path }

func (m mount) GetAttributes() volume.Attributes {
	v := m.volume
	switch {
	case v.Image != nil:
		return volume.Attributes{ReadOnly: true}
	case v.HostPath != nil:
		return volume.Attributes{}
	case v.EmptyDir != nil:
		return volume.Attributes{Managed: true, SELinuxRelabel: true}
	default:
		return volume.Attributes{ReadOnly: true, Managed: true, SELinuxRelabel: true}
	}
}

type block struct {
	volume.BlockVolumeMapper
	root string
}

func (b block) GetPodDeviceMapPath() (dir, name string) { return filepath.Split(blockDevice(b.root)) }

// subPaths prepares nothing, and returns the paths of the bind mounts.
type subPaths struct{ root string }

func (subPaths) CleanSubPaths(string, string) error            { return nil }
func (subPaths) SafeMakeDir(string, string, os.FileMode) error { return nil }
func (s subPaths) PrepareSafeSubpath(p subpath.Subpath) (string, func(), error) {
	part, err := filepath.Rel(p.VolumePath, p.Path)
	if err != nil {
		return "", nil, err
	}
	path, err := preparedSubPath(s.root, p.ContainerName, p.VolumeName, p.VolumeMountIndex, part)
	return path, nil, err
}

// preparedSubPath returns the host path of a subPath. The preparation of a subPath named
// "part" fails.
func preparedSubPath(root, container, volume string, index int, part string) (string, error) {
	if part == "part" && container == "main-2" {
		return "", errors.New("a link leads out of the volume")
	}
	return filepath.Join(root, "subpaths", volume, container, fmt.Sprint(index), part), nil
}

// objects finds ConfigMaps and Secrets.
type objects struct {
	configmap.Manager
	world *world
}

func (o objects) GetConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	for _, c := range o.world.ConfigMaps {
		if c.Namespace == namespace && c.Name == name {
			return c, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (o objects) GetSecret(namespace, name string) (*corev1.Secret, error) {
	for _, s := range o.world.Secrets {
		if s.Namespace == namespace && s.Name == name {
			return s, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

// lookups are the objects for our side.
type lookups struct{ objects }

func (l lookups) ConfigMap(_ context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	return l.GetConfigMap(pod.Namespace, name)
}

func (l lookups) Secret(_ context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	return l.GetSecret(pod.Namespace, name)
}

func (lookups) Release(types.UID) {}

type secrets struct {
	secret.Manager
	objects objects
}

func (s secrets) GetSecret(namespace, name string) (*corev1.Secret, error) {
	return s.objects.GetSecret(namespace, name)
}

type anyClient struct{ clientset.Interface }

type services []*corev1.Service

func (s services) List(labels.Selector) ([]*corev1.Service, error) { return s, nil }

type nodes struct{ node *corev1.Node }

func (n nodes) List(labels.Selector) ([]*corev1.Node, error) { return []*corev1.Node{n.node}, nil }
func (n nodes) Get(string) (*corev1.Node, error)             { return n.node, nil }

type runtimeClasses map[string]string

func (c runtimeClasses) List(labels.Selector) ([]*nodev1.RuntimeClass, error) { return nil, nil }

func (c runtimeClasses) Get(name string) (*nodev1.RuntimeClass, error) {
	handler, ok := c[name]
	if !ok {
		return nil, apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), name)
	}
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}, nil
}

// userIDs is the Kubelet in the role that the user namespace manager needs, without the ID
// ranges of the real machine.
type userIDs struct{ *kubelet.Kubelet }

func (userIDs) GetKubeletMappings(klog.Logger, uint32) (first, length uint32, err error) {
	return 65536, math.MaxUint32 - 65535, nil
}

func (u userIDs) ListPodsFromDisk() (uids []types.UID, err error) {
	entries, err := os.ReadDir(filepath.Dir(u.GetPodDir("x")))
	for _, e := range entries {
		uids = append(uids, types.UID(e.Name()))
	}
	return uids, err
}

type podStates struct{}

func (podStates) IsPodTerminationRequested(types.UID) bool { return false }
func (podStates) ShouldPodContentBeRemoved(types.UID) bool { return false }
func (podStates) ShouldPodRuntimeBeRemoved(types.UID) bool { return false }

type pulling struct{}

func (pulling) RecordImageStartedPulling(types.UID)  {}
func (pulling) RecordImageFinishedPulling(types.UID) {}

// machineFiles are real files, except for the links in /var/log/containers.
type machineFiles struct {
	kubecontainer.RealOS
	facts *recorder
}

func (m machineFiles) Symlink(log, name string) error {
	m.facts.link(log, strings.TrimPrefix(name, "/var/log/containers/"))
	return nil
}

var (
	_ corelisters.NodeLister         = nodes{}
	_ nodelisters.RuntimeClassLister = runtimeClasses{}
)
