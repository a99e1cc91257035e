package lifecycle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// running returns upstream's set of pods, by name.
func running() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{
		"tiny":                    podAsking("cpu", "1m", "memory", "1Mi"),
		"bestEffort":              podAsking(),
		"cluster-critical":        podAsking("cpu", "100m", "memory", "100Mi"),
		"node-critical":           podAsking("cpu", "100m", "memory", "100Mi"),
		"burstable":               podAsking("cpu", "100m", "memory", "100Mi"),
		"high-request-burstable":  podAsking("cpu", "300m", "memory", "300Mi"),
		"guaranteed":              podAsking("cpu", "100m", "memory", "100Mi"),
		"high-request-guaranteed": podAsking("cpu", "300m", "memory", "300Mi"),
	}
	for name, pod := range all {
		pod.Name, pod.UID = name, types.UID(name)
	}
	for _, name := range []string{"guaranteed", "high-request-guaranteed"} {
		r := &all[name].Spec.Containers[0].Resources
		r.Limits = r.Requests
	}
	all["cluster-critical"].Spec.Priority = new(podspec.SystemCriticalPriority)
	all["node-critical"].Spec.Priority = new(podspec.SystemCriticalPriority + 100)
	return all
}

// needs returns needs for millicores of CPU, Mi of memory, and a number of pods.
func needs(cpu, memory, pods int64) (all []lifecycle.Need) {
	for _, n := range []lifecycle.Need{
		{Resource: corev1.ResourceCPU, Amount: cpu},
		{Resource: corev1.ResourceMemory, Amount: memory << 20},
		{Resource: corev1.ResourcePods, Amount: pods},
	} {
		if n.Amount > 0 {
			all = append(all, n)
		}
	}
	return all
}

// Upstream's TestGetPodsToPreempt and TestEvictPodsToFreeRequests.
func TestGetPodsToPreempt(t *testing.T) {
	t.Parallel()
	pods := running()
	for _, tt := range []struct {
		name, preemptor string
		running         []string
		needs           []lifecycle.Need
		want            []string
		fails           bool
	}{
		{"no requirements", "cluster-critical", nil, nil, nil, false},
		{"no pods", "cluster-critical", nil, needs(0, 0, 1), nil, true},
		{"equal pods and requirements", "cluster-critical", []string{"burstable"}, needs(100, 100, 1), []string{"burstable"}, false},
		{"more is required than pods hold", "cluster-critical", []string{"burstable"}, needs(200, 200, 2), nil, true},
		{"bestEffort before burstable", "cluster-critical", []string{"burstable", "bestEffort"}, needs(0, 0, 1), []string{"bestEffort"}, false},
		{"burstable before guaranteed", "cluster-critical", []string{"burstable", "guaranteed"}, needs(0, 0, 1), []string{"burstable"}, false},
		{
			"the lower burstable if it is enough", "cluster-critical",
			[]string{"bestEffort", "high-request-burstable", "burstable"},
			needs(100, 100, 0),
			[]string{"burstable"},
			false,
		},
		{
			"the higher burstable if the lower is not enough", "cluster-critical",
			[]string{"bestEffort", "burstable", "high-request-burstable"},
			needs(150, 150, 0),
			[]string{"high-request-burstable"},
			false,
		},
		{
			"several pods", "cluster-critical",
			[]string{"bestEffort", "burstable", "high-request-burstable", "guaranteed", "high-request-guaranteed"},
			needs(350, 350, 0),
			[]string{"high-request-burstable", "burstable"},
			false,
		},
		{
			"guaranteed when there is no other way, and no burstable in vain", "cluster-critical",
			[]string{"bestEffort", "burstable", "high-request-burstable", "guaranteed", "high-request-guaranteed"},
			needs(0, 550, 0),
			[]string{"high-request-burstable", "high-request-guaranteed"},
			false,
		},
		{"cluster-critical for node-critical", "node-critical", []string{"cluster-critical"}, needs(100, 0, 0), []string{"cluster-critical"}, false},
		{"never node-critical for cluster-critical", "cluster-critical", []string{"node-critical"}, needs(100, 0, 0), nil, true},
		{"critical pods are not preempted", "cluster-critical", []string{"cluster-critical"}, needs(0, 0, 1), nil, true},
		{"best effort pods free nothing", "cluster-critical", []string{"bestEffort"}, needs(0, 1, 0), nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			others := []*corev1.Pod{nil}
			for _, name := range tt.running {
				others = append(others, pods[name])
			}
			victims, err := lifecycle.PlanPreemption(pods[tt.preemptor], others, tt.needs)
			if tt.fails {
				require.ErrorIs(t, err, lifecycle.ErrNoVictims)
				require.Empty(t, victims)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, v := range victims {
				got = append(got, v.Name)
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestPlanPreemption_ErrorNamesUncoveredNeeds(t *testing.T) {
	t.Parallel()
	pods := running()
	_, err := lifecycle.PlanPreemption(pods["cluster-critical"], []*corev1.Pod{pods["burstable"]}, needs(150, 90, 3))
	require.EqualError(t, err, "no set of running pods found to reclaim resources: [(res: cpu, q: 50), (res: pods, q: 2), ]")
}

func TestPlanPreemption_LowerPriorityAndYoungerFirst(t *testing.T) {
	t.Parallel()
	pods := running()
	make3 := func(change func(i int, pod *corev1.Pod)) []*corev1.Pod {
		var all []*corev1.Pod
		for i := range 3 {
			pod := podAsking("cpu", "100m")
			pod.UID = types.UID(fmt.Sprint(i))
			change(i, pod)
			all = append(all, pod)
		}
		return all
	}
	for name, change := range map[string]func(int, *corev1.Pod){
		"priority": func(i int, pod *corev1.Pod) { pod.Spec.Priority = new(int32(10 * (i - 1) * (i - 1))) },
		"age": func(i int, pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(epoch().Add(-time.Duration((i-1)*(i-1)) * time.Hour))
		},
		"cpu": func(i int, pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = res("cpu", fmt.Sprintf("%dm", 100+(i-1)*(i-1)), "memory", "5")
		},
		"memory": func(i int, pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = res("cpu", "200m", "memory", fmt.Sprint(1+(i-1)*(i-1)))
		},
	} {
		victims, err := lifecycle.PlanPreemption(pods["cluster-critical"], make3(change), needs(100, 0, 0))
		require.NoError(t, err, name)
		require.Len(t, victims, 1, name)
		require.Equal(t, types.UID("1"), victims[0].UID, name)
	}
}

// The kubelet kills the closest match first, even if the other victims turn out to be enough.
func TestPlanPreemption_NoUnnecessaryVictims(t *testing.T) {
	t.Parallel()
	both, cpu, memory := podAsking("cpu", "90m", "memory", "90Mi"), podAsking("cpu", "100m", "memory", "50Mi"), podAsking("cpu", "50m", "memory", "100Mi")
	both.UID, cpu.UID, memory.UID = "both", "cpu", "memory"
	victims, err := lifecycle.PlanPreemption(running()["cluster-critical"], []*corev1.Pod{both, cpu, memory}, needs(150, 150, 0))
	require.NoError(t, err)
	require.Equal(t, []*corev1.Pod{cpu, memory}, victims)
}

func TestPlanPreemption_HugeHoldingsCoverTheNeeds(t *testing.T) {
	t.Parallel()
	giant := podAsking("memory", "9223372036854775807")
	pods := []*corev1.Pod{giant, giant, giant}
	victims, err := lifecycle.PlanPreemption(running()["cluster-critical"], pods, []lifecycle.Need{
		{Resource: corev1.ResourceMemory, Amount: math.MaxInt64}, {Resource: corev1.ResourceCPU, Amount: -1},
	})
	require.NoError(t, err)
	require.Len(t, victims, 1)
}

// A plan covers the needs, contains no pod twice and no unnecessary pod, and does not depend
// on the order of the pods.
func TestPlanPreemption_MinimalPlansForRandomNodes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var pods []*corev1.Pod
		for i := range rng.IntN(12) {
			pod := podAsking("cpu", fmt.Sprintf("%dm", rng.IntN(4)*100), "memory", fmt.Sprint(rng.IntN(3)*100))
			pod.UID = types.UID(fmt.Sprint(i))
			if rng.IntN(3) == 0 {
				r := &pod.Spec.Containers[0].Resources
				r.Limits = r.Requests
			}
			pods = append(pods, pod)
		}
		critical := running()["cluster-critical"]
		want := []lifecycle.Need{
			{Resource: corev1.ResourceCPU, Amount: int64(rng.IntN(8)) * 50},
			{Resource: corev1.ResourceMemory, Amount: int64(rng.IntN(8)) * 50},
		}
		plan, err := lifecycle.PlanPreemption(critical, pods, want)
		rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		again, errAgain := lifecycle.PlanPreemption(critical, pods, want)
		require.Equal(t, plan, again, "seed %d: the order of the pods must not matter", seed)
		require.Equal(t, err, errAgain, "seed %d", seed)
		if err != nil {
			require.False(t, covers(pods, want), "seed %d: there is an error, although killing all pods would be enough", seed)
			continue
		}
		require.True(t, covers(plan, want), "seed %d", seed)
		for i := range plan {
			require.False(t, covers(slices.Delete(slices.Clone(plan), i, i+1), want), "seed %d: victim %d is unnecessary", seed, i)
		}
		seen := map[types.UID]bool{}
		for _, v := range plan {
			require.False(t, seen[v.UID], "seed %d: duplicate victim", seed)
			seen[v.UID] = true
		}
	}
}

func covers(pods []*corev1.Pod, needs []lifecycle.Need) bool {
	var cpu, memory int64
	for _, pod := range pods {
		held := podspec.AllocatedResources(pod)
		cpu += held.Cpu().MilliValue()
		memory += held.Memory().Value()
	}
	return cpu >= needs[0].Amount && memory >= needs[1].Amount
}
