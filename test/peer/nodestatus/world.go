package nodestatus

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is a node and its events.
type World struct {
	NodeIPs           []string
	Hostname          string
	NodeName          string // an IP address, which DNS returns, or empty
	Default           string // the address of the default route, or empty
	Cloud, NoIsolated bool
	MaxPods, PerCore  int
	MaxImages         int
	Reserved          [2]corev1.ResourceList
	Thresholds        []threshold
	Steps             []*Step
}

// A threshold is a hard eviction threshold.
type threshold struct {
	Signal     string
	Quantity   int64
	Percentage float32
}

// A Step is the state of the node for a while.
type Step struct {
	Wait    time.Duration
	Edit    edit
	Restart bool
	// Delay is the random addition to the next report period after a change.
	Delay time.Duration

	Machine *machine // nil if it cannot be measured
	Devices devices

	Name, Version string // of the runtime
	NoVersion     bool   // the runtime does not return its version
	Asked         bool
	Status        *runtimeapi.StatusResponse // nil if the call fails
	Images        []*runtimeapi.Image

	Pressure map[corev1.NodeConditionType]bool
	Health   string // reason for which the PLEG is not healthy
	Storage  string
	Shutdown bool
	Warning  string
}

type machine struct {
	Cores            int
	Memory           int64
	Pages            map[int64]int64 // number of huge pages by size in KiB
	Swap             int64
	Storage          int64 // -1 if unknown
	ID, System, Boot string
}

// devices maps a resource to its number of devices.
type devices struct {
	Whole, Healthy map[string]int64
	Removed        []string
}

// An edit is a change that another client makes to the status before a step.
type edit string

const (
	nothing     edit = ""
	unknown     edit = "the node controller sets conditions to Unknown"
	first       edit = "a condition added first"
	last        edit = "a condition added last"
	license     edit = "an extended resource of another client"
	leftover    edit = "an allocatable resource without capacity"
	attached    edit = "an attached volume"
	noImages    edit = "images deleted"
	noCondition edit = "conditions deleted"
	cloudWrites edit = "addresses of the cloud provider"
	reasons     edit = "condition reasons of another client"
)

// write applies the edit.
func (e edit) write(s *corev1.NodeStatus, now time.Time) {
	network := corev1.NodeCondition{Type: "NetworkUnavailable", Status: corev1.ConditionFalse, Reason: "RouteCreated"}
	switch e {
	case unknown:
		for i := range s.Conditions {
			s.Conditions[i].Status, s.Conditions[i].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
			s.Conditions[i].LastTransitionTime = metav1.NewTime(now)
		}
	case reasons:
		for i := range s.Conditions {
			s.Conditions[i].Reason, s.Conditions[i].Message = "Theirs", "text"
		}
	case first:
		s.Conditions = append([]corev1.NodeCondition{network}, s.Conditions...)
	case last:
		s.Conditions = append(s.Conditions, network)
	case license:
		if s.Capacity == nil {
			s.Capacity = corev1.ResourceList{}
		}
		s.Capacity["b.io/license"] = resource.MustParse("5")
	case leftover:
		if s.Allocatable == nil {
			s.Allocatable = corev1.ResourceList{}
		}
		for _, name := range []corev1.ResourceName{"b.io/gone", "native", "c.kubernetes.io/x", "requests.b.io/x", "b.io/a b"} {
			s.Allocatable[name] = resource.MustParse("7")
		}
	case attached:
		s.VolumesAttached = append(s.VolumesAttached, corev1.AttachedVolume{Name: "v"})
	case noImages:
		s.Images = nil
	case noCondition:
		s.Conditions = nil
	case cloudWrites:
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "1.2.3.4"}}
	case nothing:
	}
}

func newWorld(d *judge.Draw) *World {
	w := &World{
		NodeIPs: judge.Pick(d, []string{"10.0.0.1"}, nil, []string{"fd00::1"}, []string{"10.0.0.1", "fd00::1"}, []string{"0.0.0.0"},
			[]string{"::"}, []string{"10.0.0.1", "::"}, []string{"0.0.0.0", "fd00::1"}, []string{"::ffff:10.0.0.2"}),
		Hostname: judge.Pick(d, "n", "n", "10.0.0.3", "fd00::3"),
		NodeName: judge.Pick(d, "", "10.0.0.4", "fd00::4"),
		Default:  judge.Pick(d, "10.0.0.5", "", "fd00::5"),
		Cloud:    d.Chance(20), NoIsolated: d.Chance(20),
		MaxPods: judge.Pick(d, 110, 0, 5), PerCore: judge.Pick(d, 0, 0, 1, 10, 100),
		MaxImages: judge.Pick(d, 50, 2, 0, -1),
	}
	for i := range w.Reserved {
		w.Reserved[i] = corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "hugepages-2Mi"} {
			if d.Chance(25) {
				w.Reserved[i][name] = resource.MustParse(judge.Pick(d, "100m", "0", "1", "200Mi", "1G", "20Gi"))
			}
		}
	}
	for range d.Int(3) {
		w.Thresholds = append(w.Thresholds, threshold{
			Signal:   judge.Pick(d, "memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree", "allocatableMemory.available"),
			Quantity: int64(d.Int(3)) * 100 << 20, Percentage: judge.Pick[float32](d, 0, 0.1, 0.33, 1),
		})
	}
	m, devs := newMachine(d), devices{}
	for i := range d.Between(1, 7) {
		w.Steps = append(w.Steps, newStep(d, i, &m, &devs))
	}
	return w
}

func newMachine(d *judge.Draw) machine {
	m := machine{
		Cores: judge.Pick(d, 4, 1, 0, 64), Memory: judge.Pick[int64](d, 8<<30, 0, 1<<30, 33_333_333), Storage: judge.Pick[int64](d, 100<<30, -1, 0, 77_777_777),
		Pages: map[int64]int64{}, Swap: judge.Pick[int64](d, 0, 0, 1<<30, 1),
		ID: judge.Pick(d, "m", "m2", ""), System: judge.Pick(d, "s", "s", ""), Boot: judge.Pick(d, "b1", "b1", "b2"),
	}
	for _, size := range []int64{2 << 10, 1 << 20, 64} {
		if d.Chance(25) {
			m.Pages[size] = int64(judge.Pick(d, 0, 1, 3, 100))
		}
	}
	return m
}

func newStep(d *judge.Draw, number int, m *machine, devs *devices) *Step {
	s := &Step{
		Wait: judge.Pick(d, 10*time.Second, time.Second, 30*time.Second, 31*time.Second, 5*time.Minute, 5*time.Minute-1, 4*time.Minute, 8*time.Minute),
		Name: "containerd", Version: judge.Pick(d, "2.1.4", "v2.1.4", "v2.0.0-rc.1+x", "1.30", "v27.5.1~ds1", "", "main", "01.2"),
		NoVersion: d.Chance(4), Asked: !d.Chance(15),
		Pressure: map[corev1.NodeConditionType]bool{},
		Shutdown: d.Chance(5),
	}
	if d.Chance(30) {
		s.Delay = time.Duration(d.Between(-150, 150)) * time.Second
	}
	if number > 0 {
		s.Restart = d.Chance(8)
		if d.Chance(20) {
			s.Edit = judge.Pick(d, unknown, first, last, license, leftover, attached, noImages, noCondition, cloudWrites, reasons)
		}
		if d.Chance(20) {
			*m = newMachine(d)
		}
	}
	if !d.Chance(5) {
		now := *m
		s.Machine = &now
	}
	if d.Chance(20) {
		*devs = newDevices(d, devs)
	}
	s.Devices = *devs
	if !d.Chance(8) {
		s.Status = newAnswer(d)
	}
	for i := range d.Int(5) {
		s.Images = append(s.Images, &runtimeapi.Image{
			Id: fmt.Sprintf("sha256:%d", i), Size: uint64(judge.Pick(d, 5, 5, 7, 1<<40)),
			RepoTags: []string{"a:1", "a:2", "a:3", "a:4", "a:5", "a:6"}[:d.Int(7)], RepoDigests: []string{"d@1", "d@2", "d@3"}[:d.Int(4)],
		})
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		s.Pressure[kind] = d.Chance(20)
	}
	if d.Chance(8) {
		s.Health = judge.Pick(d, "pleg has yet to be successful", "pleg was last seen active 4m ago; threshold is 3m0s")
	}
	if d.Chance(5) {
		s.Storage = judge.Pick(d, "CSINode is not yet initialized", "node is shutting down")
	}
	if d.Chance(5) {
		s.Warning = "CPU hardcapping unsupported"
	}
	return s
}

// newDevices draws numbers of devices. A resource without devices is removed.
func newDevices(d *judge.Draw, before *devices) devices {
	next := devices{Whole: map[string]int64{}, Healthy: map[string]int64{}}
	for _, name := range []string{"a.io/gpu", "a.io/fpga"} {
		_, had := before.Whole[name]
		switch {
		case d.Chance(50):
			next.Whole[name] = int64(d.Int(5))
			next.Healthy[name] = int64(d.Int(int(next.Whole[name]) + 1))
		case had:
			next.Removed = append(next.Removed, name)
		}
	}
	return next
}

func newAnswer(d *judge.Draw) *runtimeapi.StatusResponse {
	a := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		if d.Chance(2) {
			continue
		}
		c := &runtimeapi.RuntimeCondition{Type: kind, Status: !d.Chance(10)}
		if !c.Status {
			c.Reason, c.Message = judge.Pick(d, "NetworkPluginNotReady", ""), judge.Pick(d, "cni plugin not initialized", "")
		}
		a.Status.Conditions = append(a.Status.Conditions, c)
	}
	names := []string{"runc", "", "kata"}
	for range d.Int(4) {
		if len(names) == 0 {
			break
		}
		i := d.Int(len(names))
		h := &runtimeapi.RuntimeHandler{Name: names[i]}
		names = append(names[:i:i], names[i+1:]...)
		if d.Chance(70) {
			h.Features = &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: d.Chance(50), UserNamespaces: d.Chance(50)}
		}
		a.RuntimeHandlers = append(a.RuntimeHandlers, h)
	}
	if d.Chance(60) {
		a.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: d.Chance(50)}
	}
	return a
}

// String describes a world.
func (w *World) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "addresses %v %q %q %q, cloud %t, no isolation %t, pods %d %d, images %d\nreserved %v\nthresholds %+v\n",
		w.NodeIPs, w.Hostname, w.NodeName, w.Default, w.Cloud, w.NoIsolated, w.MaxPods, w.PerCore, w.MaxImages, w.Reserved, w.Thresholds)
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: %+v\n", i, *s)
		if s.Machine != nil {
			fmt.Fprintf(&b, "  machine %+v\n", *s.Machine)
		}
	}
	return b.String()
}
