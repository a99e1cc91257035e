package eviction_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// These tests use noisy, enormous or impossible values, and runtimes that fail all the time.

func TestGracePeriod_NoiseDoesNotRestartIt(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	var dueAt time.Duration
	for at := time.Duration(0); at < 3*time.Minute && dueAt == 0; at += 100 * time.Millisecond {
		available := gi / 2
		if at/(100*time.Millisecond)%20 == 19 { // one observation in twenty is above the threshold
			available = 2 * gi
		}
		if h.look(100*time.Millisecond, memoryIs(available)).Thresholds[0].Due {
			dueAt = at
		}
	}
	require.Equal(t, 66600*time.Millisecond, dueAt, "the threshold must be due after this time (the kubelet, which evaluates every 10 s, needs one minute)")
}

func TestGracePeriod_RarelyMetThresholdIsNeverDue(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	for i := range 36_000 {
		available := gi / 2
		if i%5 > 1 { // met in two evaluations of five
			available = 2 * gi
		}
		require.False(t, h.look(100*time.Millisecond, memoryIs(available)).Thresholds[0].Due)
	}
}

func TestGracePeriod_TenSecondsAboveTheThresholdRestartIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		enough time.Duration
		due    bool
	}{
		{"a break of nine seconds extends it by eighteen", 9 * time.Second, true},
		{"a break of ten seconds restarts it", 10 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Hour))
			for range 3600 - 1 {
				h.look(time.Second, memoryIs(gi/2))
			}
			for range tt.enough / time.Second {
				require.Empty(t, h.look(time.Second, memoryIs(2*gi)).Victims)
			}
			for range 10 {
				h.look(time.Second, memoryIs(gi/2))
			}
			require.Equal(t, tt.due, h.look(time.Second, memoryIs(gi/2)).Thresholds[0].Due)
		})
	}
}

func TestGracePeriod_RestartsAfterReclaiming(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	h.look(0, memoryIs(gi/2))
	require.True(t, h.look(time.Minute, memoryIs(gi/2)).Thresholds[0].Due)
	require.Contains(t, h.look(time.Second, memoryIs(gi)).String(), "fine, 1Gi of 10Gi available\n")
	require.False(t, h.look(time.Second, memoryIs(gi/2)).Thresholds[0].Due)
	h.look(5*time.Second, memoryIs(gi/2))
	require.Contains(t, h.look(time.Second, memoryIs(gi)).String(), "met recently\n")
}

func TestEvaluate_EnormousAmountsDoNotOverflow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		th   eviction.Threshold
		of   eviction.Observation
	}{
		{"a minimum reclaim", eviction.Threshold{
			Signal: eviction.MemoryAvailable, Value: eviction.Value{Quantity: gi}, MinReclaim: eviction.Value{Quantity: math.MaxInt64},
		}, memoryIs(0)},
		{"a minimum reclaim in percent", eviction.Threshold{
			Signal: eviction.MemoryAvailable, Value: eviction.Value{Fraction: 1}, MinReclaim: eviction.Value{Fraction: 3},
		}, saw(eviction.MemoryAvailable, 1, math.MaxInt64)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, tt.th)
			h.add(newPod("a"), memoryStats(newPod("a"), math.MaxInt64/2))
			h.add(newPod("b"), memoryStats(newPod("b"), math.MaxInt64/2))
			h.add(newPod("c"), memoryStats(newPod("c"), math.MaxInt64/2))
			d := h.look(0, tt.of)
			require.EqualValues(t, math.MaxInt64, d.Thresholds[0].Target)
			require.Positive(t, d.Thresholds[0].Shortfall)
			require.GreaterOrEqual(t, len(d.Victims), 2)
		})
	}
}

func TestEvaluate_SumsOfEnormousUsageAreNotNegative(t *testing.T) {
	t.Parallel()
	pod := newPod("huge", emptyDir("v", "1Gi", ""), limited(corev1.ResourceEphemeralStorage, "1Gi"))
	stats := diskStats(pod, math.MaxInt64, math.MaxInt64, math.MaxInt64)
	got := ranked(eviction.NodeFSAvailable, eviction.SingleFS, eviction.Policy{}, []*corev1.Pod{pod}, stats)
	require.EqualValues(t, math.MaxInt64, got[0].Usage.Value)
	require.Empty(t, got[0].Kept)
	stats.Volumes = nil
	obs := eviction.Observations{Pods: []*corev1.Pod{pod}, PodStats: byUID(stats), CheckLimits: true}
	require.Len(t, eviction.PlanEviction(eviction.State{}, obs, eviction.Policy{}, epoch()).Limits, 1)
}

func TestEvaluate_ZeroOfZeroIsUnknown(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("hog"), memoryStats(newPod("hog"), gi))
	d := h.look(0, saw(eviction.MemoryAvailable, 0, 0))
	require.Equal(t, eviction.Implausible, d.Thresholds[0].State)
	require.True(t, d.IsNoop())
	require.Empty(t, d.Conditions)
}

func TestPolicy_FractionsAboveOneAreRefused(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, v := range []eviction.Value{{Fraction: 1.5}, {Fraction: -1, Quantity: 5}, {Fraction: nan}, {Fraction: nan, Quantity: 5}} {
		p := eviction.Policy{Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: v}}}
		require.ErrorContains(t, p.Validate(), "field Thresholds[0].Value: ", v)
	}
}

// terminationGracePeriodSeconds may be any number.
func TestPolicy_HugeGracePeriodDoesNotOverflow(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.add(newPod("slow", grace(math.MaxInt64)), memoryStats(newPod("slow"), gi))
	cfg := n.config(soft(eviction.MemoryAvailable, mi, time.Second))
	cfg.Policy.MaxPodGracePeriodSeconds = -1
	m := newManager(t, cfg)
	n.step(m, 0)
	require.Equal(t, []string{"slow"}, victims(n.step(m, time.Second)))
	d := n.step(m, time.Hour)
	require.Positive(t, d.Next.InFlight[0].Deadline.Sub(n.clock.Now()), "the deadline must be in the future")
	n.waitCalls(1)
	n.end("slow", nil)
	m.Wait()
}

func TestManager_FailingRuntimeEvictsAtMostMaxParallelPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	for i := range 20 {
		name := fmt.Sprintf("pod-%02d", i)
		n.add(newPod(name), memoryStats(newPod(name), mi))
	}
	cfg := n.config(hard(eviction.MemoryAvailable, gi))
	cfg.Policy.MaxParallelEvictions = 3
	m := newManager(t, cfg)
	kills := 0
	for range 50 { // number of evaluations in 5 s
		all := victims(n.step(m, 100*time.Millisecond))
		kills += len(all)
		n.waitCalls(len(all))
		for _, name := range all {
			n.end(name, errors.New("the socket is gone"))
		}
		m.Wait()
	}
	require.Equal(t, 3, kills)
	require.Contains(t, n.step(m, time.Millisecond).String(), "the maximum number of pods is already terminating")
	require.Len(t, n.step(m, 10*time.Second).Victims, 3, "after the failures, the next pods must be tried")
	for _, call := range n.waitCalls(3) {
		n.end(strings.Fields(call)[1], nil)
	}
	m.Wait()
}

func TestRun_KeepsEvaluatingWhileASignalIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.saw(eviction.MemoryAvailable, 2*gi, 10*gi)
		cfg := n.config(hard(eviction.MemoryAvailable, gi))
		var looks atomic.Int64
		cfg.Observer.Evaluated = func(eviction.Decision, error) { looks.Add(1) }
		_, stop := running(t, n, cfg)
		n.mu.Lock()
		clear(n.obs)
		n.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		looks.Store(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.InDelta(t, 10, looks.Load(), 1)
		stop()
	})
}

func TestRun_DryRunMeasuresPodsRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.saw(eviction.MemoryAvailable, 0, 10*gi)
		n.add(newPod("hog"), memoryStats(newPod("hog"), gi))
		cfg := n.config(hard(eviction.MemoryAvailable, gi))
		cfg.Mode = eviction.DryRun
		var looks atomic.Int64
		cfg.Observer.Evaluated = func(eviction.Decision, error) { looks.Add(1) }
		_, stop := running(t, n, cfg)
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		require.InDelta(t, 11, looks.Load(), 1)
		stop()
	})
}

func TestRun_PersistentErrorIsNotLoggedEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.saw(eviction.MemoryAvailable, gi, 10*gi)
		n.nodeErr = errors.New("imagefs is gone")
		cfg := n.config(hard(eviction.MemoryAvailable, gi))
		var log strings.Builder
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		_, stop := running(t, n, cfg)
		time.Sleep(35 * time.Second)
		stop()
		require.Equal(t, 4, strings.Count(log.String(), "imagefs is gone"))
	})
}

func TestDecision_StringPrintsOneLinePerPod(t *testing.T) {
	t.Parallel()
	const hostile = "x\nremove forged\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: hostile}}
	text := eviction.Decision{
		Limits:     []eviction.Breach{{Pod: pod, Message: hostile}},
		Escalate:   []types.UID{hostile},
		Candidates: []eviction.Candidate{{Pod: pod, Kept: hostile}},
	}.String()
	require.Equal(t, printable.Lines(text, ""), text)
	require.Equal(t, 3, strings.Count(text, "\n"), text)
}
