package podworker_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

func priority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &n }
}

func grace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func noGrace(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil }

// show formats a plan: the priority and period of each stage, and the name and
// grace period of its pods.
func show(stages []podworker.Stage) string {
	var lines []string
	for _, s := range stages {
		line := fmt.Sprintf("%d %v:", s.Priority, s.Period)
		for _, p := range s.Pods {
			line += fmt.Sprintf(" %s %v", p.Pod.Name, p.Grace)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestPlanShutdown(t *testing.T) {
	t.Parallel()
	type buckets = []podworker.ShutdownGracePeriodByPodPriority
	two := podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second}.GracePeriods()
	three := buckets{{Priority: 1000, GracePeriod: 20 * time.Second}, {Priority: 0, GracePeriod: 5 * time.Second}, {Priority: 10, GracePeriod: 10 * time.Second}}
	critical := newPod("critical", priority(podworker.CriticalPriority))
	for _, tt := range []struct {
		name    string
		pods    []*corev1.Pod
		periods buckets
		total   time.Duration
		want    string
	}{
		{"no buckets, no shutdown", []*corev1.Pod{newPod("a")}, nil, 0, ""},
		{"no pods", nil, two, 0, ""},
		{"critical pods last", []*corev1.Pod{critical, newPod("a", noGrace), newPod("b", priority(5))}, two, 0, "0 20s: a 20s b 20s\n2000000000 10s: critical 10s"},
		{"a pod with a shorter grace period", []*corev1.Pod{newPod("a", grace(3)), newPod("b", grace(60))}, two, 0, "0 20s: a 3s b 20s"},
		{"a grace of zero", []*corev1.Pod{newPod("a", grace(0))}, two, 0, "0 20s: a 0s"},
		{"a grace below and beyond everything", []*corev1.Pod{newPod("a", grace(-1)), newPod("b", grace(math.MaxInt64))}, two, 0, "0 20s: a 0s b 20s"},
		{
			"buckets in any order",
			[]*corev1.Pod{newPod("c", priority(5000)), newPod("b", priority(999)), newPod("a", priority(9)), nil},
			three, 0, "0 5s: a 5s\n10 10s: b 10s\n1000 20s: c 20s",
		},
		{"the bounds of a bucket", []*corev1.Pod{newPod("a", priority(10)), newPod("b", priority(1000))}, three, 0, "10 10s: a 10s\n1000 20s: b 20s"},
		{"below the lowest bucket", []*corev1.Pod{newPod("a", priority(-7)), newPod("b", priority(math.MinInt32))}, three, 0, "0 5s: a 5s b 5s"},
		{"above the highest bucket", []*corev1.Pod{newPod("a", priority(math.MaxInt32))}, three, 0, "1000 20s: a 20s"},
		{"a bucket without pods is left out", []*corev1.Pod{critical}, two, 0, "2000000000 10s: critical 10s"},
		{"a total that suffices", []*corev1.Pod{newPod("a"), critical}, two, 30 * time.Second, "0 20s: a 20s\n2000000000 10s: critical 10s"},
		{"too short a total reduces the period of the first stage", []*corev1.Pod{newPod("a"), critical}, two, 12 * time.Second, "0 2s: a 2s\n2000000000 10s: critical 10s"},
		{"a total that suffices only for the critical pods", []*corev1.Pod{newPod("a"), critical}, two, 4 * time.Second, "0 0s: a 0s\n2000000000 4s: critical 4s"},
		{"a total applies only to stages with pods", []*corev1.Pod{newPod("a")}, two, 20 * time.Second, "0 20s: a 20s"},
		{"a negative period", []*corev1.Pod{newPod("a")}, buckets{{GracePeriod: -time.Second}}, 0, "0 0s: a 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			periods := slices.Clone(tt.periods)
			require.Equal(t, tt.want, show(podworker.PlanShutdown(tt.pods, tt.periods, tt.total)))
			require.Equal(t, periods, tt.periods, "the configuration must not be modified")
		})
	}
}

// Every pod is in one stage, stages have ascending priorities, no grace period exceeds the
// period of its stage, and all stages fit into the total.
func TestPlanShutdown_RandomInputsKeepInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var periods []podworker.ShutdownGracePeriodByPodPriority
		for _, n := range rng.Perm(100)[:1+rng.IntN(4)] {
			periods = append(periods, podworker.ShutdownGracePeriodByPodPriority{
				Priority: int32(n), GracePeriod: time.Duration(rng.IntN(60)) * time.Second,
			})
		}
		var pods []*corev1.Pod
		for i := range rng.IntN(20) {
			pods = append(pods, newPod(types.UID(fmt.Sprint(i)), priority(rng.Int32N(140)-20), grace(rng.Int64N(90))))
		}
		total := time.Duration(1+rng.IntN(100)) * time.Second
		var planned []*corev1.Pod
		var took time.Duration
		before := int64(math.MinInt64)
		for _, s := range podworker.PlanShutdown(pods, periods, total) {
			require.Greater(t, int64(s.Priority), before, "seed %d", seed)
			before = int64(s.Priority)
			took += s.Period
			require.NotEmpty(t, s.Pods, "seed %d", seed)
			for _, p := range s.Pods {
				require.LessOrEqual(t, p.Grace, s.Period, "seed %d", seed)
				planned = append(planned, p.Pod)
			}
		}
		require.ElementsMatch(t, pods, planned, "seed %d", seed)
		require.LessOrEqual(t, took, total, "seed %d", seed)
	}
}

func TestShutdownConfig(t *testing.T) {
	t.Parallel()
	type config = podworker.ShutdownConfig
	type bucket = podworker.ShutdownGracePeriodByPodPriority
	for _, tt := range []struct {
		name    string
		config  config
		total   time.Duration
		buckets []bucket
		wrong   []string
	}{
		{"none", config{}, 0, nil, nil},
		{
			"two periods",
			config{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second},
			30 * time.Second,
			[]bucket{{0, 20 * time.Second}, {podworker.CriticalPriority, 10 * time.Second}},
			nil,
		},
		{
			"nothing for critical pods",
			config{ShutdownGracePeriod: 30 * time.Second},
			30 * time.Second,
			[]bucket{{0, 30 * time.Second}, {podworker.CriticalPriority, 0}},
			nil,
		},
		{
			"buckets",
			config{ShutdownGracePeriodByPodPriority: []bucket{{5, time.Second}, {-5, 2 * time.Second}}},
			3 * time.Second,
			[]bucket{{5, time.Second}, {-5, 2 * time.Second}},
			nil,
		},
		{"a fraction of a second", config{ShutdownGracePeriod: time.Millisecond}, 0, nil, []string{"ShutdownGracePeriod: 1ms must be zero or at least 1s"}},
		{"negative", config{ShutdownGracePeriod: -time.Hour, ShutdownGracePeriodCriticalPods: -time.Second}, 0, nil, []string{
			"ShutdownGracePeriod: -1h0m0s must be", "ShutdownGracePeriodCriticalPods: -1s must be", "more than ShutdownGracePeriod",
		}},
		{"more for some than for all", config{ShutdownGracePeriod: time.Second, ShutdownGracePeriodCriticalPods: time.Minute}, 0, nil, []string{
			"ShutdownGracePeriodCriticalPods: 1m0s is more than ShutdownGracePeriod, 1s",
		}},
		{"both ways", config{ShutdownGracePeriod: time.Second, ShutdownGracePeriodByPodPriority: []bucket{{0, 1}, {0, -1}}}, 0, nil, []string{
			"must not be set together with", "[0]: 1ns is not a number of whole seconds", "[1]: -1ns is not", "[1]: priority 0 is used twice",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.config.Validate()
			for _, text := range tt.wrong {
				require.ErrorContains(t, err, text)
			}
			if tt.wrong == nil {
				require.NoError(t, err)
				require.Equal(t, tt.buckets, tt.config.GracePeriods())
				require.Equal(t, tt.total, tt.config.Total())
			}
		})
	}
}
