package nodestatus_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// A world returns random facts.
type world struct{ *rand.Rand }

func (w world) chance() bool { return w.IntN(2) == 0 }

func (w world) list(names ...corev1.ResourceName) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, name := range names {
		if w.chance() {
			l[name] = *resource.NewQuantity(w.Int64N(1<<30), resource.BinarySI)
		}
	}
	return l
}

func (w world) facts(now time.Time) nodestatus.Facts {
	f := nodestatus.Facts{
		MaxPods: w.IntN(200), PodsPerCore: w.IntN(3), SwapBytes: w.Int64N(3), Port: int32(w.IntN(3)),
		NoLocalStorageIsolation: w.chance(),
		Extended:                nodestatus.Extended{Capacity: w.list("a.io/x", "b.io/y"), Allocatable: w.list("a.io/x")},
		Reserved:                []corev1.ResourceList{w.list("cpu", "memory", "ephemeral-storage"), w.list("memory", "c.io/z")},
		Info:                    corev1.NodeSystemInfo{BootID: fmt.Sprint(w.IntN(2)), KernelVersion: fmt.Sprint(w.IntN(2))},
		Problems:                nodestatus.Problems{ShuttingDown: w.chance()},
	}
	if w.chance() {
		f.Capacity = w.list("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
	}
	if w.chance() {
		f.Addresses = nodestatus.Addresses{Hostname: "n", Default: netip.AddrFrom4([4]byte{10, 0, 0, byte(w.IntN(3))}), ExternalCloudProvider: w.chance()}
	}
	for i := range w.IntN(3) {
		f.Images = append(f.Images, corev1.ContainerImage{Names: []string{fmt.Sprint(i)}, SizeBytes: w.Int64N(9)})
	}
	if w.chance() {
		f.Runtime.ReadyAt = now.Add(-time.Duration(w.IntN(40)) * time.Second)
		f.Runtime.Status = answer(runtimeIs(w.chance()), networkIs(w.chance()))
		for i := range w.IntN(3) {
			f.Runtime.Status.RuntimeHandlers = append(f.Runtime.Status.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: fmt.Sprint(9 - i)})
		}
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if w.chance() {
			f.Pressure = append(f.Pressure, kind)
		}
	}
	return f
}

// TestNext_Invariants checks rules that apply to all facts and all previous statuses.
func TestNext_Invariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := world{rand.New(rand.NewPCG(seed, 0))}
		now := start()
		var s *corev1.NodeStatus
		for range 6 {
			now = now.Add(time.Duration(w.IntN(600)) * time.Second)
			f := w.facts(now)
			before := s.DeepCopy()
			next := nodestatus.Next(s, f, now)
			require.True(t, equality.Semantic.DeepEqual(before, s), "seed %d: the previous status was modified", seed)
			checkResources(t, next, f)
			checkConditions(t, s, next, now)

			again := nodestatus.Next(next, f, now.Add(time.Nanosecond))
			require.False(t, nodestatus.ReportDue(next, again, now, now, time.Second), "seed %d: unchanged facts must not be a change", seed)
			require.Empty(t, nodestatus.Events("n", next, again), "seed %d", seed)
			if w.chance() {
				next.Conditions = append([]corev1.NodeCondition{{Type: "Other"}}, next.Conditions...)
			}
			s = next
		}
	}
}

func checkResources(t *testing.T, s *corev1.NodeStatus, f nodestatus.Facts) {
	t.Helper()
	for name, whole := range s.Capacity {
		left, ok := s.Allocatable[name]
		require.True(t, ok, name)
		require.GreaterOrEqual(t, left.Sign(), 0, name)
		if _, devices := f.Extended.Allocatable[name]; !devices {
			require.LessOrEqual(t, left.Cmp(whole), 0, name)
		}
	}
	for name, whole := range f.Extended.Capacity {
		require.Zero(t, whole.Cmp(s.Capacity[name]), name)
	}
}

func checkConditions(t *testing.T, before, after *corev1.NodeStatus, now time.Time) {
	t.Helper()
	var order []corev1.NodeConditionType
	for _, c := range after.Conditions {
		if c.Type == "Other" {
			continue
		}
		order = append(order, c.Type)
		require.Equal(t, now, c.LastHeartbeatTime.Time)
		want := now
		if before != nil {
			i := slices.IndexFunc(before.Conditions, func(b corev1.NodeCondition) bool { return b.Type == c.Type })
			if before.Conditions[i].Status == c.Status {
				want = before.Conditions[i].LastTransitionTime.Time
			}
		}
		require.Equal(t, want, c.LastTransitionTime.Time, c.Type)
	}
	require.Equal(t, []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady}, order)
}

// TestNext_NodeLifecycle shows the statuses of a node from its first to its last.
func TestNext_NodeLifecycle(t *testing.T) {
	t.Parallel()
	f := well()
	f.Runtime = nodestatus.Runtime{}
	var s *corev1.NodeStatus
	var told []string
	at := start()
	look := func(after time.Duration) {
		at = at.Add(after)
		next := nodestatus.Next(s, f, at)
		for _, e := range nodestatus.Events("n", s, next) {
			told = append(told, fmt.Sprintf("%v %s", at.Sub(start()), e.Reason))
		}
		s = next
	}
	look(0)
	f.Runtime = nodestatus.Runtime{Status: answer(runtimeIs(true), networkIs(false)), ReadyAt: at.Add(time.Second)}
	look(time.Second)
	f.Runtime = nodestatus.Runtime{Status: answer(runtimeIs(true), networkIs(true)), ReadyAt: at.Add(5 * time.Second)}
	look(5 * time.Second)
	look(29 * time.Second) // the runtime restarts
	look(time.Second)
	f.Runtime.ReadyAt = at
	f.Pressure = []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	look(time.Second)
	f.Pressure, f.Problems.ShuttingDown = nil, true
	look(time.Second)
	require.Equal(t, []string{
		"0s NodeHasSufficientMemory", "0s NodeHasNoDiskPressure", "0s NodeHasSufficientPID", "6s NodeReady", "36s NodeNotReady",
		"37s NodeHasInsufficientMemory", "37s NodeReady", "38s NodeHasSufficientMemory", "38s NodeNotReady",
	}, told)
}
