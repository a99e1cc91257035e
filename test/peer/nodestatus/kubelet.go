package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	goruntime "runtime"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	_ "k8s.io/kubernetes/pkg/kubelet/kuberuntime" // the linker must include the functions below
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

//go:linkname newRuntimeState k8s.io/kubernetes/pkg/kubelet.newRuntimeState
func newRuntimeState(time.Duration) unsafe.Pointer

//go:linkname runtimeErrors k8s.io/kubernetes/pkg/kubelet.(*runtimeState).runtimeErrors
func runtimeErrors(unsafe.Pointer) error

//go:linkname networkErrors k8s.io/kubernetes/pkg/kubelet.(*runtimeState).networkErrors
func networkErrors(unsafe.Pointer) error

//go:linkname storageErrors k8s.io/kubernetes/pkg/kubelet.(*runtimeState).storageErrors
func storageErrors(unsafe.Pointer) error

//go:linkname setStorageState k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setStorageState
func setStorageState(unsafe.Pointer, error)

//go:linkname addHealthCheck k8s.io/kubernetes/pkg/kubelet.(*runtimeState).addHealthCheck
func addHealthCheck(unsafe.Pointer, string, func() (bool, error))

//go:linkname runtimeHandlers k8s.io/kubernetes/pkg/kubelet.(*runtimeState).runtimeHandlers
func runtimeHandlers(unsafe.Pointer) []kubecontainer.RuntimeHandler

//go:linkname runtimeFeatures k8s.io/kubernetes/pkg/kubelet.(*runtimeState).runtimeFeatures
func runtimeFeatures(unsafe.Pointer) *kubecontainer.RuntimeFeatures

//go:linkname updateRuntimeUp k8s.io/kubernetes/pkg/kubelet.(*Kubelet).updateRuntimeUp
func updateRuntimeUp(*kubelet.Kubelet, context.Context)

//go:linkname updateNode k8s.io/kubernetes/pkg/kubelet.(*Kubelet).updateNode
func updateNode(*kubelet.Kubelet, context.Context, *corev1.Node) (*corev1.Node, bool)

//go:linkname isUpdateStatusPeriodExpired k8s.io/kubernetes/pkg/kubelet.(*Kubelet).isUpdateStatusPeriodExpired
func isUpdateStatusPeriodExpired(*kubelet.Kubelet) bool

//go:linkname toKubeRuntimeStatus k8s.io/kubernetes/pkg/kubelet/kuberuntime.toKubeRuntimeStatus
func toKubeRuntimeStatus(*runtimeapi.RuntimeStatus, []*runtimeapi.RuntimeHandler, *runtimeapi.RuntimeFeatures) *kubecontainer.RuntimeStatus

//go:linkname newRuntimeVersion k8s.io/kubernetes/pkg/kubelet/kuberuntime.newRuntimeVersion
func newRuntimeVersion(string) (*utilversion.Version, error)

//go:linkname hardEvictionReservation k8s.io/kubernetes/pkg/kubelet/cm.hardEvictionReservation
func hardEvictionReservation([]evictionapi.Threshold, corev1.ResourceList) corev1.ResourceList

//go:linkname rebootEvent k8s.io/kubernetes/pkg/kubelet/nodestatus.rebootEvent
var rebootEvent sync.Once

// field returns a field, exported or not, of the struct to which v points.
func field(v any, name string) reflect.Value {
	f := reflect.ValueOf(v).Elem().FieldByName(name)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

func set(v any, name string, value any) { field(v, name).Set(reflect.ValueOf(value)) }

// theKubelet is a kubelet from its start to its restart, and the current step.
type theKubelet struct {
	*kubelet.Kubelet
	w     *World
	state unsafe.Pointer
	step  *Step
	facts judge.Facts // for events
}

func newKubelet(w *World) *theKubelet {
	k := &theKubelet{Kubelet: &kubelet.Kubelet{}, w: w, state: newRuntimeState(30 * time.Second)}
	*(*unsafe.Pointer)(unsafe.Pointer(field(k.Kubelet, "runtimeState").UnsafeAddr())) = k.state
	set(k.Kubelet, "containerRuntime", runtime{k: k})
	set(k.Kubelet, "clock", clock.RealClock{})
	set(k.Kubelet, "nodeStatusReportFrequency", period)
	field(k.Kubelet, "oneTimeInitializer").Addr().Interface().(*sync.Once).Do(func() {})
	addHealthCheck(k.state, "PLEG", func() (bool, error) {
		return k.step.Health == "", errors.New(k.step.Health)
	})
	set(k.Kubelet, "setNodeStatusFuncs", k.setters())
	rebootEvent = sync.Once{}
	return k
}

// setters returns the kubelet's setters, in its order.
func (k *theKubelet) setters() (all []func(context.Context, *corev1.Node) error) {
	is := func(kind corev1.NodeConditionType) func() bool { return func() bool { return k.step.Pressure[kind] } }
	with := func(f func(unsafe.Pointer) error) func() error { return func() error { return f(k.state) } }
	for _, s := range []kubeletstatus.Setter{
		kubeletstatus.NodeAddress(ips(k.w.NodeIPs...), func(net.IP) error { return nil }, k.w.Hostname, k.w.Cloud, k.defaultRoute),
		kubeletstatus.MachineInfo("n", k.w.MaxPods, k.w.PerCore, k.machine, k.capacity, k.devices, k.reservation, k.record, !k.w.NoIsolated),
		kubeletstatus.VersionInfo(k.versions, func() string { return k.step.Name }, k.runtimeVersion),
		kubeletstatus.DaemonEndpoints(&corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}}),
		kubeletstatus.Images(int32(k.w.MaxImages), k.images),
		kubeletstatus.GoRuntime(),
		kubeletstatus.RuntimeHandlers(func() []kubecontainer.RuntimeHandler { return runtimeHandlers(k.state) }),
		kubeletstatus.NodeFeatures(func() *kubecontainer.RuntimeFeatures { return runtimeFeatures(k.state) }),
		kubeletstatus.MemoryPressureCondition(time.Now, is(corev1.NodeMemoryPressure), k.recordStatus),
		kubeletstatus.DiskPressureCondition(time.Now, is(corev1.NodeDiskPressure), k.recordStatus),
		kubeletstatus.PIDPressureCondition(time.Now, is(corev1.NodePIDPressure), k.recordStatus),
		kubeletstatus.ReadyCondition(time.Now, with(runtimeErrors), with(networkErrors), with(storageErrors), k.managers, k.shutdown, k.recordStatus, !k.w.NoIsolated),
	} {
		all = append(all, s)
	}
	return all
}

func ips(texts ...string) (all []net.IP) {
	for _, text := range texts {
		all = append(all, net.ParseIP(text))
	}
	return all
}

func (k *theKubelet) defaultRoute(net.IP) (net.IP, error) {
	if k.w.Default == "" {
		return nil, errors.New("no default route")
	}
	return net.ParseIP(k.w.Default), nil
}

func (k *theKubelet) machine() (*cadvisorapi.MachineInfo, error) {
	m := k.step.Machine
	if m == nil {
		return nil, errors.New("cadvisor is ill")
	}
	info := &cadvisorapi.MachineInfo{
		NumCores: m.Cores, MemoryCapacity: uint64(m.Memory), SwapCapacity: uint64(m.Swap), MachineID: m.ID, SystemUUID: m.System, BootID: m.Boot,
	}
	for size, n := range m.Pages {
		info.HugePages = append(info.HugePages, cadvisorapi.HugePagesInfo{PageSize: uint64(size), NumPages: uint64(n)})
	}
	return info, nil
}

// capacity returns the container manager's capacity of the machine.
func (k *theKubelet) capacity(isolation bool) corev1.ResourceList {
	all := corev1.ResourceList{}
	if m := k.step.Machine; m != nil && m.Storage >= 0 && isolation {
		all[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(m.Storage, resource.BinarySI)
	}
	return all
}

func (k *theKubelet) devices() (whole, healthy corev1.ResourceList, removed []string) {
	whole, healthy = corev1.ResourceList{}, corev1.ResourceList{}
	for name, n := range k.step.Devices.Whole {
		whole[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	for name, n := range k.step.Devices.Healthy {
		healthy[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return whole, healthy, k.step.Devices.Removed
}

// reservation computes the reservation as the container manager does, from the capacity in
// the status.
func (k *theKubelet) reservation() corev1.ResourceList {
	var thresholds []evictionapi.Threshold
	for _, t := range k.w.Thresholds {
		value := evictionapi.ThresholdValue{Percentage: t.Percentage}
		if t.Percentage == 0 {
			value.Quantity = resource.NewQuantity(t.Quantity, resource.BinarySI)
		}
		thresholds = append(thresholds, evictionapi.Threshold{Signal: evictionapi.Signal(t.Signal), Operator: evictionapi.OpLessThan, Value: value})
	}
	all := corev1.ResourceList{}
	lists := []corev1.ResourceList{k.w.Reserved[0], k.w.Reserved[1], hardEvictionReservation(thresholds, k.w.machineCapacity(k.step))}
	for _, list := range lists {
		for name, amount := range list {
			sum := all[name]
			sum.Add(amount)
			all[name] = sum
		}
	}
	return all
}

func (k *theKubelet) versions() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{KernelVersion: "6.1", ContainerOsVersion: "Debian"}, nil
}

func (k *theKubelet) runtimeVersion(context.Context) (kubecontainer.Version, error) {
	if k.step.NoVersion {
		return nil, errors.New("no answer")
	}
	v, err := newRuntimeVersion(k.step.Version)
	if err != nil {
		return nil, err
	}
	return version{v}, nil
}

// version is the version of a runtime.
type version struct{ *utilversion.Version }

func (version) Compare(string) (int, error) { return 0, nil }

func (k *theKubelet) images() (all []kubecontainer.Image, _ error) {
	for _, img := range k.step.Images {
		all = append(all, kubecontainer.Image{ID: img.Id, Size: int64(img.Size), RepoTags: img.RepoTags, RepoDigests: img.RepoDigests})
	}
	sort.Sort(sliceutils.ByImageSize(all))
	return all, nil
}

func (k *theKubelet) managers() cm.Status {
	if k.step.Warning == "" {
		return cm.Status{}
	}
	return cm.Status{SoftRequirements: errors.New(k.step.Warning)}
}

func (k *theKubelet) shutdown() error {
	if k.step.Shutdown {
		return errors.New("node is shutting down")
	}
	return nil
}

func (k *theKubelet) record(kind, reason, message string) { addEvent(k.facts, kind, reason, message) }

func (k *theKubelet) recordStatus(_ klog.Logger, kind, reason string) {
	addEvent(k.facts, kind, reason, fmt.Sprintf("Node %s status is now: %s", "n", reason))
}

// runtime is the runtime in a step.
type runtime struct {
	kubecontainer.Runtime
	k *theKubelet
}

// Status returns the runtime's status in the step.
func (r runtime) Status(context.Context) (*kubecontainer.RuntimeStatus, error) {
	if a := r.k.step.Status; a != nil {
		return toKubeRuntimeStatus(a.Status, a.RuntimeHandlers, a.Features), nil
	}
	return nil, errors.New("no answer")
}

func playKubelet(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(w)
		node := &corev1.Node{}
		node.Name = w.NodeName
		node.Labels = map[string]string{corev1.LabelOSStable: goruntime.GOOS, corev1.LabelArchStable: goruntime.GOARCH}
		for _, step := range w.Steps {
			time.Sleep(step.Wait)
			if step.Restart {
				k = newKubelet(w)
			}
			step.Edit.write(&node.Status, time.Now())
			k.step, k.facts = step, judge.Facts{}
			setStorageState(k.state, nil)
			if step.Storage != "" {
				setStorageState(k.state, errors.New(step.Storage))
			}
			if step.Asked {
				updateRuntimeUp(k.Kubelet, t.Context())
			}
			next, changed := updateNode(k.Kubelet, t.Context(), node)
			f := statusFacts(&next.Status)
			f["events"] = k.facts["events"]
			due := changed || isUpdateStatusPeriodExpired(k.Kubelet)
			decide(f, changed, due)
			if due {
				node = next
				k.reported(changed)
			}
			all = append(all, f)
		}
	})
	return all
}

// reported records a report, with the delay that the world has drawn.
func (k *theKubelet) reported(changed bool) {
	last := field(k.Kubelet, "lastStatusReportTime")
	delay := time.Duration(0)
	if changed || last.Interface().(time.Time).IsZero() {
		delay = k.step.Delay
	}
	set(k.Kubelet, "delayAfterNodeStatusChange", delay)
	last.Set(reflect.ValueOf(time.Now()))
}
