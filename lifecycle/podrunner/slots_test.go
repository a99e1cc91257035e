package podrunner_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// slowSandboxes creates sandboxes slowly, and records when the creation of each
// sandbox started.
type slowSandboxes struct {
	podrunner.Sandboxes
	takes time.Duration

	mu         sync.Mutex
	epoch      time.Time
	begun      map[string]time.Duration // by pod
	atOnce, in int
}

func (s *slowSandboxes) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	s.mu.Lock()
	s.begun[config.GetMetadata().GetName()] = time.Since(s.epoch)
	s.in++
	s.atOnce = max(s.atOnce, s.in)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.in--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(s.takes):
		return s.Sandboxes.RunPodSandbox(ctx, config, handler)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// starts returns when the creation of each pod's sandbox started.
func (s *slowSandboxes) starts() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.begun)
}

// inSlots runs f in a bubble, with a runtime that needs the given time to create a sandbox.
func inSlots(t *testing.T, parallel int, takes time.Duration, f func(*bed, *slowSandboxes)) {
	t.Helper()
	slow := &slowSandboxes{takes: takes, begun: map[string]time.Duration{}}
	inBubble(t, func(b *bed) {
		slow.epoch = time.Now()
		f(b, slow)
	}, func(c *podrunner.Config) {
		slow.Sandboxes = c.Sandboxes
		c.Sandboxes, c.ParallelStarts = slow, parallel
	})
}

func namedPod(i int) *corev1.Pod {
	pod := podOf(nil, "app")
	pod.Name, pod.UID = fmt.Sprint("pod", i), types.UID(fmt.Sprint("uid", i))
	return pod
}

// startMany starts a sync of each pod, in order, and returns a function that
// waits for all syncs.
func (b *bed) startMany(ctx context.Context, pods int) (wait func() []error) {
	errs := make([]error, pods)
	var turns sync.WaitGroup
	for i := range pods {
		turns.Go(func() {
			pod := namedPod(i)
			_, errs[i] = b.runner.SyncPod(ctx, podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
		})
		synctest.Wait()
	}
	return func() []error {
		turns.Wait()
		return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	}
}

func TestSlots_LimitStartsAndKeepTheirOrder(t *testing.T) {
	t.Parallel()
	inSlots(t, 2, 100*time.Millisecond, func(b *bed, slow *slowSandboxes) {
		require.Empty(t, b.startMany(b.t.Context(), 6)())
		require.Equal(t, 2, slow.atOnce)
		require.Equal(t, map[string]time.Duration{
			"pod0": 0, "pod1": 0, "pod2": 100 * time.Millisecond, "pod3": 100 * time.Millisecond,
			"pod4": 200 * time.Millisecond, "pod5": 200 * time.Millisecond,
		}, slow.starts(), "the sandboxes must be created in the order of the syncs")
	})
}

// A network plugin that hangs or is slow does not use a slot for longer than a second,
// because it does not use the CPU.
func TestSlots_SlowStartBlocksOthersForOneSecond(t *testing.T) {
	t.Parallel()
	inSlots(t, 2, time.Minute, func(b *bed, slow *slowSandboxes) {
		require.Empty(t, b.startMany(b.t.Context(), 6)())
		require.Equal(t, 6, slow.atOnce)
		require.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second, 2 * time.Second},
			slices.Sorted(maps.Values(slow.starts())))
	})
}

func TestSyncPod_WaitForSlotIsCancelled(t *testing.T) {
	t.Parallel()
	inSlots(t, 1, 900*time.Millisecond, func(b *bed, slow *slowSandboxes) {
		ctx, cancel := context.WithTimeout(b.t.Context(), 500*time.Millisecond)
		defer cancel()
		wait := b.startMany(b.t.Context(), 1)
		pod := namedPod(1)
		_, err := b.runner.SyncPod(ctx, podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
		require.EqualError(t, err, "wait for a start slot for pod ns/pod1: context deadline exceeded")
		require.Equal(t, 500*time.Millisecond, time.Since(slow.epoch))
		require.Empty(t, wait())
		require.Len(t, slow.starts(), 1)
		require.Empty(t, b.held.left())
		_, err = b.runner.SyncPod(b.t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
		require.NoError(t, err, "the slot of a cancelled sync must be free again")
		require.Len(t, slow.starts(), 2)
	})
}

func TestSlots_ImagesArePulledWhileThePodWaits(t *testing.T) {
	t.Parallel()
	inSlots(t, 1, 900*time.Millisecond, func(b *bed, slow *slowSandboxes) {
		wait := b.startMany(b.t.Context(), 1)
		pod := namedPod(1)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "crash", Image: "crash"})
		var second sync.WaitGroup
		second.Go(func() {
			_, err := b.runner.SyncPod(b.t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
			require.NoError(t, err)
		})
		synctest.Wait()
		require.Contains(t, b.did(), "PullImage crash:latest")
		require.Len(t, slow.starts(), 1)
		second.Wait()
		require.Empty(t, wait())
	})
}

func TestSlots_DefaultIsThreePerProcessor(t *testing.T) {
	t.Parallel()
	inSlots(t, 0, 100*time.Millisecond, func(b *bed, slow *slowSandboxes) {
		require.Empty(t, b.startMany(b.t.Context(), 3*runtime.GOMAXPROCS(0)+1)())
		require.Equal(t, 3*runtime.GOMAXPROCS(0), slow.atOnce)
	})
}
