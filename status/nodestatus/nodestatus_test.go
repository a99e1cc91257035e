package nodestatus_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func texts(l corev1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, q := range l {
		all[string(name)] = q.String()
	}
	return all
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func answer(conditions ...*runtimeapi.RuntimeCondition) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: conditions}}
}

func runtimeIs(ready bool) *runtimeapi.RuntimeCondition {
	return &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: ready, Reason: "R", Message: "m"}
}

func networkIs(ready bool) *runtimeapi.RuntimeCondition {
	return &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: ready, Reason: "N", Message: "no plugin"}
}

// well returns the facts of a ready node.
func well() nodestatus.Facts {
	return nodestatus.Facts{
		Capacity: list("cpu", "4", "memory", "1Gi", "ephemeral-storage", "10Gi"), MaxPods: 110,
		Runtime: nodestatus.Runtime{Status: answer(runtimeIs(true), networkIs(true)), ReadyAt: start()},
	}
}

func condition(t *testing.T, s *corev1.NodeStatus, kind corev1.NodeConditionType) corev1.NodeCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	require.Fail(t, "condition is missing", kind)
	return corev1.NodeCondition{}
}

func TestNext_Resources(t *testing.T) {
	t.Parallel()
	type lists = map[string]string
	for name, c := range map[string]struct {
		previous              *corev1.NodeStatus
		change                func(*nodestatus.Facts)
		capacity, allocatable lists
	}{
		"the machine's": {
			change:      func(*nodestatus.Facts) {},
			capacity:    lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110"},
			allocatable: lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110"},
		},
		"fewer pods on few processors": {
			change:      func(f *nodestatus.Facts) { f.PodsPerCore = 10 },
			capacity:    lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "40"},
			allocatable: lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "40"},
		},
		"reservations, one above the capacity": {
			change: func(f *nodestatus.Facts) {
				f.Reserved = []corev1.ResourceList{list("cpu", "500m", "memory", "24Mi"), list("memory", "100Mi", "ephemeral-storage", "11Gi", "x", "1")}
			},
			capacity:    lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110"},
			allocatable: lists{"cpu": "3500m", "memory": "900Mi", "ephemeral-storage": "0", "pods": "110"},
		},
		"huge pages": {
			change:      func(f *nodestatus.Facts) { f.Capacity = list("cpu", "4", "memory", "1Gi", "hugepages-2Mi", "24Mi") },
			capacity:    lists{"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "24Mi", "pods": "110"},
			allocatable: lists{"cpu": "4", "memory": "1000Mi", "hugepages-2Mi": "24Mi", "pods": "110"},
		},
		"more huge pages than memory": {
			change:      func(f *nodestatus.Facts) { f.Capacity = list("cpu", "4", "memory", "1Gi", "hugepages-1Gi", "2Gi") },
			capacity:    lists{"cpu": "4", "memory": "1Gi", "hugepages-1Gi": "2Gi", "pods": "110"},
			allocatable: lists{"cpu": "4", "memory": "0", "hugepages-1Gi": "2Gi", "pods": "110"},
		},
		"devices, some broken, one removed": {
			change: func(f *nodestatus.Facts) {
				f.Extended = nodestatus.Extended{Capacity: list("a.io/gpu", "4", "a.io/old", "0"), Allocatable: list("a.io/gpu", "3")}
			},
			previous:    &corev1.NodeStatus{Capacity: list("a.io/old", "2"), Allocatable: list("a.io/old", "2")},
			capacity:    lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110", "a.io/gpu": "4", "a.io/old": "0"},
			allocatable: lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110", "a.io/gpu": "3", "a.io/old": "0"},
		},
		"resources of others": {
			change: func(*nodestatus.Facts) {},
			previous: &corev1.NodeStatus{
				Capacity:    list("b.io/license", "5"),
				Allocatable: list("b.io/gone", "1", "x.kubernetes.io/kept", "1", "native", "1", "requests.a.io/quota", "1", "a.io/no name", "1"),
			},
			capacity: lists{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110", "b.io/license": "5"},
			allocatable: lists{
				"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "110", "b.io/license": "5",
				"x.kubernetes.io/kept": "1", "native": "1", "requests.a.io/quota": "1", "a.io/no name": "1",
			},
		},
		"a machine that can't be measured": {
			change:      func(f *nodestatus.Facts) { f.Capacity, f.PodsPerCore = nil, 1 },
			previous:    &corev1.NodeStatus{Capacity: list("cpu", "4", "ephemeral-storage", "10Gi")},
			capacity:    lists{"cpu": "0", "memory": "0", "ephemeral-storage": "10Gi", "pods": "110"},
			allocatable: lists{"cpu": "0", "memory": "0", "ephemeral-storage": "10Gi", "pods": "110"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := well()
			c.change(&f)
			s := nodestatus.Next(c.previous, f, start())
			require.Equal(t, c.capacity, texts(s.Capacity))
			require.Equal(t, c.allocatable, texts(s.Allocatable))
		})
	}
}

func TestNext_NodeInfo(t *testing.T) {
	t.Parallel()
	full := corev1.NodeSystemInfo{
		MachineID: "m", SystemUUID: "u", BootID: "b", KernelVersion: "6.1", OSImage: "Debian", KubeletVersion: "v1.36.0",
		OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "x",
		Swap: &corev1.NodeSwapStatus{Capacity: new(int64(1))},
	}
	f := well()
	f.Info, f.SwapBytes = full, 1<<30
	f.Runtime.Version = &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.0.1"}
	want := full
	want.ContainerRuntimeVersion, want.Swap = "containerd://2.0.1", &corev1.NodeSwapStatus{Capacity: new(int64(1 << 30))}
	first := nodestatus.Next(nil, f, start())
	require.Equal(t, want, first.NodeInfo)

	unknown := nodestatus.Next(first, nodestatus.Facts{}, start())
	require.Equal(t, want, unknown.NodeInfo)
	want.Swap = nil
	require.Equal(t, want, nodestatus.Next(first, well(), start()).NodeInfo)
}

func TestNext_RuntimeVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.7.24": "1.7.24", "v2.1.0-rc.1+git5": "2.1.0-rc.1+git5", "1.30": "1.30", "v27.5.1~ds1": "27.5.1", "": "Unknown", "main": "Unknown",
	} {
		f := well()
		f.Runtime.Version = &runtimeapi.VersionResponse{RuntimeName: "cri-o", RuntimeVersion: text}
		require.Equal(t, "cri-o://"+want, nodestatus.Next(nil, f, start()).NodeInfo.ContainerRuntimeVersion, text)
	}
}

func TestNext_Addresses(t *testing.T) {
	t.Parallel()
	before := []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "1.2.3.4"}}
	type facts = nodestatus.Addresses
	for name, c := range map[string]struct {
		facts facts
		old   []corev1.NodeAddress
		want  []string // addresses; the last is the host name
	}{
		"none":                         {facts: facts{Hostname: "n"}, old: before, want: []string{"1.2.3.4"}},
		"configured address":           {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("10.0.0.1")}, Default: ip("10.0.0.2")}, old: before, want: []string{"10.0.0.1", "n"}},
		"one of each family":           {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("fd00::1"), ip("10.0.0.1")}}, want: []string{"fd00::1", "10.0.0.1", "n"}},
		"the second unspecified":       {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("10.0.0.1"), ip("::")}}, want: []string{"10.0.0.1", "n"}},
		"an IPv4-mapped IPv6 address":  {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("::ffff:10.0.0.1")}}, want: []string{"10.0.0.1", "n"}},
		"host name that is an address": {facts: facts{Hostname: "10.0.0.3", Resolved: []netip.Addr{ip("10.0.0.4")}}, want: []string{"10.0.0.3", "10.0.0.3"}},
		"resolved, IPv4 first":         {facts: facts{Hostname: "n", Resolved: []netip.Addr{ip("fd00::4"), ip("10.0.0.4"), ip("10.0.0.5")}}, want: []string{"10.0.0.4", "n"}},
		"resolved, IPv6 chosen": {
			facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("::")}, Resolved: []netip.Addr{ip("10.0.0.4"), ip("fd00::4")}}, want: []string{"fd00::4", "n"},
		},
		"resolved, other family only":        {facts: facts{Hostname: "n", Resolved: []netip.Addr{ip("fd00::4")}}, want: []string{"fd00::4", "n"}},
		"the default route":                  {facts: facts{Hostname: "n", Default: ip("10.0.0.6")}, want: []string{"10.0.0.6", "n"}},
		"cloud, before the first":            {facts: facts{Hostname: "n", Default: ip("10.0.0.6"), ExternalCloudProvider: true}, want: []string{"n"}},
		"cloud, with configured addresses":   {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("10.0.0.1")}, ExternalCloudProvider: true}, want: []string{"10.0.0.1", "n"}},
		"cloud, a family":                    {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("0.0.0.0")}, Default: ip("10.0.0.6"), ExternalCloudProvider: true}, want: []string{"10.0.0.6", "n"}},
		"cloud, a family without an address": {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("0.0.0.0")}, ExternalCloudProvider: true}, want: nil},
		"cloud, written by the cloud":        {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("10.0.0.1")}, ExternalCloudProvider: true}, old: before, want: []string{"1.2.3.4"}},
		"more than two are not written":      {facts: facts{Hostname: "n", NodeIPs: []netip.Addr{ip("10.0.0.1"), ip("fd00::1"), ip("10.0.0.2")}}, want: []string{"10.0.0.1", "fd00::1", "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := well()
			f.Addresses = c.facts
			s := nodestatus.Next(&corev1.NodeStatus{Addresses: c.old}, f, start())
			var got []string
			for _, a := range s.Addresses {
				got = append(got, a.Address)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestNext_RuntimeHandlers(t *testing.T) {
	t.Parallel()
	f := well()
	f.Runtime.Status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{
		{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}, {Name: ""},
	}
	f.Runtime.Status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	first := nodestatus.Next(nil, f, start())
	require.Equal(t, []corev1.NodeRuntimeHandler{
		{Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(false), UserNamespaces: new(false)}},
		{Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true), UserNamespaces: new(false)}},
	}, first.RuntimeHandlers)
	require.Equal(t, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}, first.Features)

	f.Runtime.Status = answer(runtimeIs(false))
	down := nodestatus.Next(first, f, start())
	require.Equal(t, first.RuntimeHandlers, down.RuntimeHandlers)
	require.Equal(t, first.Features, down.Features)
	other := nodestatus.Next(first, well(), start())
	require.Empty(t, other.RuntimeHandlers)
	require.Equal(t, first.Features, other.Features)
}

func TestNext_Ready(t *testing.T) {
	t.Parallel()
	const good = "kubelet is posting ready status"
	for name, c := range map[string]struct {
		change func(*nodestatus.Facts)
		want   string
	}{
		"ready":             {func(*nodestatus.Facts) {}, good},
		"never asked":       {func(f *nodestatus.Facts) { f.Runtime = nodestatus.Runtime{} }, "[container runtime status check may not have completed yet, network state unknown]"},
		"down in a moment":  {func(f *nodestatus.Facts) { f.Runtime.ReadyAt = start().Add(-30*time.Second + 1) }, good},
		"down":              {func(f *nodestatus.Facts) { f.Runtime.ReadyAt = start().Add(-30 * time.Second) }, "container runtime is down"},
		"runtime not ready": {func(f *nodestatus.Facts) { f.Runtime.Status = answer(networkIs(true), runtimeIs(false)) }, "container runtime not ready: RuntimeReady=false reason:R message:m"},
		"network not ready": {func(f *nodestatus.Facts) { f.Runtime.Status = answer(runtimeIs(true), networkIs(false)) }, "container runtime network not ready: NetworkReady=false reason:N message:no plugin"},
		"no conditions":     {func(f *nodestatus.Facts) { f.Runtime.Status = answer() }, "[container runtime not ready: <nil>, container runtime network not ready: <nil>]"},
		"all problems": {func(f *nodestatus.Facts) {
			f.Problems = nodestatus.Problems{Health: []string{"PLEG is not healthy: x", "same", "same"}, Storage: "CSINode is not yet initialized", ShuttingDown: true}
			f.Capacity = corev1.ResourceList{}
		}, "[PLEG is not healthy: x, same, CSINode is not yet initialized, node is shutting down, missing node capacity for resources: cpu, memory, ephemeral-storage]"},
		"no disk":         {func(f *nodestatus.Facts) { delete(f.Capacity, "ephemeral-storage") }, "missing node capacity for resources: ephemeral-storage"},
		"no disk counted": {func(f *nodestatus.Facts) { delete(f.Capacity, "ephemeral-storage"); f.NoLocalStorageIsolation = true }, good},
		"a warning":       {func(f *nodestatus.Facts) { f.Problems.Warning = "no quota" }, good + ". WARNING: no quota"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := well()
			c.change(&f)
			got := condition(t, nodestatus.Next(nil, f, start()), corev1.NodeReady)
			require.Equal(t, c.want, got.Message)
			if c.want[:len("kubelet")] == "kubelet" {
				require.Equal(t, []any{corev1.ConditionTrue, "KubeletReady"}, []any{got.Status, got.Reason})
			} else {
				require.Equal(t, []any{corev1.ConditionFalse, "KubeletNotReady"}, []any{got.Status, got.Reason})
			}
		})
	}
}

func TestNext_ConditionsAndEvents(t *testing.T) {
	t.Parallel()
	kinds := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
	says := func(s *corev1.NodeStatus) (all []string) {
		for _, c := range s.Conditions {
			all = append(all, string(c.Type)+"="+string(c.Status)+" "+c.Reason+" "+c.Message)
		}
		return all
	}
	other := corev1.NodeCondition{Type: "NetworkUnavailable", Status: corev1.ConditionFalse, Reason: "CalicoIsUp"}
	f := well()
	none := &corev1.NodeStatus{Conditions: []corev1.NodeCondition{other}, NodeInfo: corev1.NodeSystemInfo{BootID: "1"}}
	f.Info.BootID = "2"
	fine := nodestatus.Next(none, f, start())
	require.Equal(t, []string{
		"NetworkUnavailable=False CalicoIsUp ",
		"MemoryPressure=False KubeletHasSufficientMemory kubelet has sufficient memory available",
		"DiskPressure=False KubeletHasNoDiskPressure kubelet has no disk pressure",
		"PIDPressure=False KubeletHasSufficientPID kubelet has sufficient PID available",
		"Ready=True KubeletReady kubelet is posting ready status",
	}, says(fine))
	require.Equal(t, []nodestatus.Event{
		{"Warning", "Rebooted", "Node n has been rebooted, boot id: 2"},
		{"Normal", "NodeHasSufficientMemory", "Node n status is now: NodeHasSufficientMemory"},
		{"Normal", "NodeHasNoDiskPressure", "Node n status is now: NodeHasNoDiskPressure"},
		{"Normal", "NodeHasSufficientPID", "Node n status is now: NodeHasSufficientPID"},
	}, nodestatus.Events("n", none, fine))

	f.Pressure, f.Problems.ShuttingDown = kinds, true
	later := start().Add(time.Minute)
	f.Runtime.ReadyAt = later
	bad := nodestatus.Next(fine, f, later)
	require.Equal(t, []string{
		"NetworkUnavailable=False CalicoIsUp ",
		"MemoryPressure=True KubeletHasInsufficientMemory kubelet has insufficient memory available",
		"DiskPressure=True KubeletHasDiskPressure kubelet has disk pressure",
		"PIDPressure=True KubeletHasInsufficientPID kubelet has insufficient PID available",
		"Ready=False KubeletNotReady node is shutting down",
	}, says(bad))
	var reasons []string
	for _, e := range nodestatus.Events("n", fine, bad) {
		reasons = append(reasons, e.Reason)
	}
	require.Equal(t, []string{"NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID", "NodeNotReady"}, reasons)
	require.Equal(t, "NodeReady", nodestatus.Events("n", bad, fine)[3].Reason)
	require.Len(t, nodestatus.Events("n", nil, fine), 3)
	require.Equal(t, nodestatus.Event{"Normal", "NodeNotSchedulable", "Node n status is now: NodeNotSchedulable"}, nodestatus.SchedulingEvent("n", true))
	require.Equal(t, nodestatus.Event{"Normal", "NodeSchedulable", "Node n status is now: NodeSchedulable"}, nodestatus.SchedulingEvent("n", false))
}

func TestNext_TransitionTimesChangeWithTheStatus(t *testing.T) {
	t.Parallel()
	f := well()
	at := func(minutes int) time.Time { return start().Add(time.Duration(minutes) * time.Minute) }
	s := nodestatus.Next(nil, f, at(0))
	f.Runtime.ReadyAt = at(10)
	s = nodestatus.Next(s, f, at(1))
	for _, c := range s.Conditions {
		require.Equal(t, []metav1.Time{metav1.NewTime(at(0)), metav1.NewTime(at(1))}, []metav1.Time{c.LastTransitionTime, c.LastHeartbeatTime})
	}
	f.Pressure, f.Problems.Storage = []corev1.NodeConditionType{corev1.NodePIDPressure}, "one"
	s = nodestatus.Next(s, f, at(2))
	require.Equal(t, at(0), condition(t, s, corev1.NodeMemoryPressure).LastTransitionTime.Time)
	require.Equal(t, at(2), condition(t, s, corev1.NodePIDPressure).LastTransitionTime.Time)
	require.Equal(t, at(2), condition(t, s, corev1.NodeReady).LastTransitionTime.Time)
	f.Problems.Storage = "two"
	s = nodestatus.Next(s, f, at(3))
	require.Equal(t, "two", condition(t, s, corev1.NodeReady).Message)
	require.Equal(t, at(2), condition(t, s, corev1.NodeReady).LastTransitionTime.Time)
}

func TestNext_KeepsTheReasonOfAContinuingPressure(t *testing.T) {
	t.Parallel()
	before := &corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "theirs", Message: "text"}}}
	got := condition(t, nodestatus.Next(before, well(), start()), corev1.NodeDiskPressure)
	require.Equal(t, []string{"theirs", "text"}, []string{got.Reason, got.Message})
}

func TestNext_SharesNothing(t *testing.T) {
	t.Parallel()
	f := well()
	f.Images = []corev1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}}
	f.Extended.Capacity = list("a.io/gpu", "1")
	f.Port = 10250
	previous := &corev1.NodeStatus{Capacity: list("cpu", "1"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}}
	kept := previous.DeepCopy()
	s := nodestatus.Next(previous, f, start())
	require.Equal(t, kept, previous)
	require.Equal(t, int32(10250), s.DaemonEndpoints.KubeletEndpoint.Port)
	s.Images[0].Names[0] = "b"
	require.Equal(t, "a", f.Images[0].Names[0])
	require.NotContains(t, f.Capacity, corev1.ResourcePods)
}

func TestImages(t *testing.T) {
	t.Parallel()
	images := []*runtimeapi.Image{
		{Id: "a", Size: 1},
		{Id: "b", Size: 3, RepoTags: []string{"t1", "t2", "t3"}, RepoDigests: []string{"d1", "d2", "d3"}},
		{Id: "c", Size: 3, RepoTags: []string{"x"}},
		{Id: "d", Size: 1 << 63},
	}
	all := []corev1.ContainerImage{
		{SizeBytes: 1<<63 - 1}, {Names: []string{"x"}, SizeBytes: 3}, {Names: []string{"d1", "d2", "d3", "t1", "t2"}, SizeBytes: 3}, {SizeBytes: 1},
	}
	require.Equal(t, all, nodestatus.Images(images, -1))
	require.Equal(t, all[:2], nodestatus.Images(images, 2))
	require.Empty(t, nodestatus.Images(images, 0))
	require.Equal(t, all, nodestatus.Images(images, nodestatus.DefaultMaxImages))
	require.Equal(t, "a", images[0].Id)
}
