package pleg_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
)

// laggy is a runtime that is slow both before and after it reads its state, and fails
// sometimes.
type laggy struct {
	*node
	mu   sync.Mutex
	rand *rand.Rand
	calm bool
}

func (l *laggy) lag(ctx context.Context, most time.Duration) error {
	l.mu.Lock()
	lag, fails := time.Duration(l.rand.Int64N(int64(most))), l.rand.IntN(40) == 0 && !l.calm
	l.mu.Unlock()
	select {
	case <-time.After(lag):
	case <-ctx.Done():
		return ctx.Err()
	}
	if fails {
		return errRuntime
	}
	return nil
}

// around calls look between two random delays.
func around[T any](ctx context.Context, l *laggy, most time.Duration, look func() (T, error)) (T, error) {
	var none T
	if err := l.lag(ctx, most); err != nil {
		return none, err
	}
	found, err := look()
	if late := l.lag(ctx, most); late != nil {
		return none, late
	}
	return found, err
}

func (l *laggy) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return around(ctx, l, 50*time.Millisecond, func() ([]*runtimeapi.PodSandbox, error) { return l.node.ListPodSandbox(ctx, f) })
}

func (l *laggy) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return around(ctx, l, 50*time.Millisecond, func() ([]*runtimeapi.Container, error) { return l.node.ListContainers(ctx, f) })
}

func (l *laggy) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return around(ctx, l, 700*time.Millisecond, func() (*runtimeapi.ContainerStatusResponse, error) {
		return l.node.ContainerStatus(ctx, id, verbose)
	})
}

// TestRun_ConcurrentReadsAreCorrect starts, stops and removes containers of a few pods while
// Run and other callers relist a slow runtime, and reads the cache with the current time. A
// read may be newer than its time, but never older. At the end there is a removal event for
// every container with events, and no event is delivered twice.
func TestRun_ConcurrentReadsAreCorrect(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { readsBesideRun(t, seed) })
	}
}

func readsBesideRun(t *testing.T, seed uint64) {
	t.Helper()
	runtime := &laggy{rand: rand.New(rand.NewPCG(seed, 3))}
	r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.Runtime, c.MaxInspections = runtime, 2 })
	runtime.node = r.node
	told := map[string][]pleg.EventType{}
	r.onEvent = func(e pleg.Event) { told[e.ContainerID] = append(told[e.ContainerID], e.Type) }
	stop := start(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for pod := range 4 {
		uid, rng := types.UID(rune('a'+pod)), rand.New(rand.NewPCG(seed, uint64(10+pod)))
		all.Go(func() { live(ctx, r, uid, rng) })
		all.Go(func() { // a caller with a short timeout
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 600*time.Millisecond)
				_ = r.RelistPod(short, uid)
				cancel()
				r.RequestRelist(uid)
				r.RequestReinspect(uid)
				time.Sleep(1300 * time.Millisecond)
			}
		})
	}
	time.Sleep(2 * time.Minute)
	cancel()
	all.Wait()
	stop()
	runtime.calm = true
	for range 2 {
		time.Sleep(time.Minute)
		_, err := r.Relist(t.Context())
		require.NoError(t, err, "seed %d", seed)
	}
	records, dirty, _ := r.Memory()
	require.Zero(t, records+dirty, "seed %d", seed)
	delete(told, "") // PodSync
	require.NotEmpty(t, told)
	whole := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	for id, events := range told { // of a short-lived container, only the last events may be delivered
		require.Equal(t, whole[len(whole)-len(events):], events, "seed %d: %s", seed, id)
	}
}

// live changes a pod's only current container, reads the pod, and removes everything at the
// end.
func live(ctx context.Context, r *rig, uid types.UID, rng *rand.Rand) {
	for made := 0; ctx.Err() == nil; made++ {
		id := fmt.Sprintf("%s%d", uid, made)
		for _, state := range []runtimeapi.ContainerState{runs, exited} {
			r.node.container(uid, id, state)
			read(ctx, r, uid, id, state)
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		}
		r.node.remove(id)
		read(ctx, r, uid, "", 0)
	}
}

// read reads the status at the current time, and checks that the pod has the container in
// the given state, or no container if id is empty.
func read(ctx context.Context, r *rig, uid types.UID, id string, state runtimeapi.ContainerState) {
	status, err := r.cache.GetNewerThan(ctx, uid, time.Now())
	switch {
	case err != nil:
		require.True(r.t, status == nil || status.Stale)
	case id == "":
		require.Empty(r.t, status.Containers)
	default:
		require.Len(r.t, status.Containers, 1)
		require.Equal(r.t, id, status.Containers[0].Id)
		require.Equal(r.t, state, status.Containers[0].State)
	}
}
