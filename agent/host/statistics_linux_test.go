package host_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
)

// slowRuntime reports one container of pod "hog". The container's memory in MiB is the number
// of the call. The test sets the duration of a call.
type slowRuntime struct {
	mu    sync.Mutex
	calls int
	takes time.Duration
	err   error
}

func (r *slowRuntime) ListContainerStats(ctx context.Context, _ *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	r.calls++
	call, takes, err := r.calls, r.takes, r.err
	r.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return []*runtimeapi.ContainerStats{{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: "1", Labels: map[string]string{"io.kubernetes.pod.uid": "hog"}, Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: time.Now().UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{Value: uint64(call) << 20},
		},
	}}, nil
}

func (r *slowRuntime) ListPodSandboxStats(ctx context.Context, _ *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	r.mu.Lock()
	takes := r.takes
	r.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

func (r *slowRuntime) answer(takes time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes, r.err = takes, err
}

func (r *slowRuntime) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// bed is a Host on a fake machine with a slowRuntime, in a bubble.
type bed struct {
	*testing.T
	host    *host.Host
	root    string
	runtime *slowRuntime
	logs    func() string
	stop    context.CancelFunc
	ended   chan error
}

// inBubble starts the Host in a bubble and calls f. The only threshold is memory.available<100Mi.
func inBubble(t *testing.T, f func(*bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, root: newMachine(t), runtime: &slowRuntime{}, ended: make(chan error, 1)}
		log, logs := logger()
		b.logs = logs
		b.host = local(t, b.root, host.LocalConfig{
			Runtime: b.runtime, Root: b.root, Logger: log,
			Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: eviction.Value{Quantity: 100 << 20}}},
		})
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		go func() { b.ended <- b.host.Run(ctx) }()
		synctest.Wait()
		f(b)
		stop()
		require.NoError(t, <-b.ended)
	})
}

// available sets the memory that the machine has available.
func (b *bed) available(mebibytes int) {
	b.Helper()
	write(b, filepath.Join(b.root, "proc/meminfo"), fmt.Sprintf("MemTotal: 8000000 kB\nMemAvailable: %d kB\n", mebibytes<<10))
}

// look measures the node.
func (b *bed) look() {
	b.Helper()
	_, err := b.host.Stats.Node(b.Context())
	require.NoError(b, err)
}

// memory returns the memory of the pod in MiB, which is the number of the call that measured
// it, and the duration of the measurement.
func (b *bed) memory(ctx context.Context) (call int64, took time.Duration) {
	b.Helper()
	began := time.Now()
	pods, err := b.host.Stats.Pods(ctx, []*corev1.Pod{nil, {ObjectMeta: metav1.ObjectMeta{UID: "hog"}}})
	require.NoError(b, err)
	require.Len(b, pods, 1)
	return pods[0].Memory.Value >> 20, time.Since(began)
}

func TestPods_FiguresAreAtMostNineSecondsOld(t *testing.T) {
	inBubble(t, func(b *bed) {
		for _, step := range []struct {
			wait time.Duration
			call int64
		}{{0, 1}, {8 * time.Second, 1}, {2 * time.Second, 2}, {9 * time.Second, 2}, {time.Millisecond, 3}} {
			time.Sleep(step.wait)
			call, took := b.memory(b.Context())
			require.Equal(b, step.call, call, "number of the call that measured the returned figures, after %v", step.wait)
			require.Zero(b, took)
		}
	})
}

func TestPods_IdleRefreshIsOnceAMinute(t *testing.T) {
	inBubble(t, func(b *bed) {
		time.Sleep(10*time.Minute + time.Second)
		require.Equal(b, 11, b.runtime.count())
	})
}

func TestPods_BelowAThresholdAreNewerThanTheMeasurement(t *testing.T) {
	inBubble(t, func(b *bed) {
		time.Sleep(time.Second)
		b.available(200)
		b.look()
		call, _ := b.memory(b.Context())
		require.EqualValues(b, 1, call, "without pressure, stored figures must be used")

		time.Sleep(time.Second)
		b.available(99)
		b.look()
		call, took := b.memory(b.Context())
		require.EqualValues(b, 2, call)
		require.Zero(b, took)
		call, _ = b.memory(b.Context())
		require.EqualValues(b, 2, call, "without an evaluation of the node, stored figures must be used")

		time.Sleep(time.Second)
		b.look()
		call, _ = b.memory(b.Context())
		require.EqualValues(b, 3, call)

		time.Sleep(time.Second)
		b.available(100)
		b.look()
		call, _ = b.memory(b.Context())
		require.EqualValues(b, 3, call, "after the pressure, stored figures must be used")
	})
}

func TestPods_RefreshBeforeTheMeasurementIsNotUsed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.answer(500*time.Millisecond, nil)
		time.Sleep(time.Minute + 100*time.Millisecond) // the second refresh is in progress
		require.Equal(b, 2, b.runtime.count())
		b.available(50)
		b.look()
		call, took := b.memory(b.Context())
		require.EqualValues(b, 3, call)
		require.Equal(b, 900*time.Millisecond, took)
	})
}

func TestPods_HungRuntimeDelaysAtMostTwoSeconds(t *testing.T) {
	inBubble(t, func(b *bed) {
		time.Sleep(30 * time.Second)
		b.runtime.answer(time.Hour, nil)
		b.available(50)
		b.look()
		call, took := b.memory(b.Context())
		require.EqualValues(b, 1, call, "while the refresh hangs, the old figures must be returned")
		require.Equal(b, 2*time.Second, took)

		ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
		defer cancel()
		_, took = b.memory(ctx)
		require.Equal(b, 300*time.Millisecond, took)

		b.runtime.answer(0, nil)
		time.Sleep(10 * time.Second) // the deadline ends the hanging call
		call, _ = b.memory(b.Context())
		require.EqualValues(b, 3, call)
	})
}

func TestPods_WithoutRunNoRuntimeFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, runtime: &slowRuntime{}}
		b.host = local(t, newMachine(t), host.LocalConfig{Runtime: b.runtime})
		call, took := b.memory(t.Context())
		require.Zero(t, call)
		require.Equal(t, 2*time.Second, took)
	})
}

func TestRun_LogsAFailureOncePerCause(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.Empty(b, b.logs())
		b.runtime.answer(0, errors.New("no such socket"))
		time.Sleep(5*time.Minute + time.Second)
		b.runtime.answer(0, errors.New("connection refused"))
		time.Sleep(5 * time.Minute)
		for _, cause := range []string{"no such socket", "connection refused"} {
			require.Equal(b, 1, strings.Count(b.logs(), cause), b.logs())
		}
		require.Contains(b, b.logs(), "retryIn=1m0s")

		b.runtime.answer(0, nil)
		time.Sleep(time.Minute)
		b.runtime.answer(0, errors.New("connection refused"))
		time.Sleep(time.Minute)
		require.Equal(b, 2, strings.Count(b.logs(), "connection refused"), "the second failure must be logged again after a success: %s", b.logs())
	})
}

func TestNode_ResultsBelongToTheCaller(t *testing.T) {
	inBubble(t, func(b *bed) {
		first, err := b.host.Stats.Node(b.Context())
		require.NoError(b, err)
		require.Equal(b, eviction.MemoryAvailable, first.Observations[0].Signal)
		before := first.Observations[0].Available
		b.available(1)
		b.look()
		require.Equal(b, before, first.Observations[0].Available)

		pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "hog"}}, {ObjectMeta: metav1.ObjectMeta{UID: "other"}}}
		figures, err := b.host.Stats.Pods(b.Context(), pods[:1])
		require.NoError(b, err)
		_, err = b.host.Stats.Pods(b.Context(), pods[1:])
		require.NoError(b, err)
		require.EqualValues(b, "hog", figures[0].UID)
	})
}

func TestSummary_IsThatOfTheProvider(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := local(t, b.root, host.LocalConfig{Runtime: b.runtime, NodeName: "node-1"})
		summary, _ := h.Stats.Summary(b.Context(), []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "hog", Name: "hog"}}})
		require.Equal(b, "node-1", summary.Node.NodeName)
		require.Equal(b, "hog", summary.Pods[0].PodRef.Name)
	})
}

// Several goroutines use one Host. The race detector checks the accesses.
func TestStats_AreSafeForConcurrentUse(t *testing.T) {
	inBubble(t, func(b *bed) {
		pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "hog"}}}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					node, _ := b.host.Stats.Node(b.Context())
					figures, _ := b.host.Stats.Pods(b.Context(), pods)
					_, _ = b.host.Stats.Summary(b.Context(), pods)
					_, _ = b.host.Facts(b.Context())
					_ = append(node.Observations[:0], eviction.Observation{})
					_ = append(figures[:0], eviction.PodStats{})
				}
			})
		}
		wg.Wait()
	})
}
