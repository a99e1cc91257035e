package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// For random containers, hooks, runtimes and second deletions: the termination is complete 2 s
// after the deadline, no container is stopped before the containers that depend on it, and
// without failures every container is stopped.
func TestTerminate_RandomPodsStopInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { terminateAtRandom(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func terminateAtRandom(t *testing.T, rng *rand.Rand) {
	t.Helper()
	grace := time.Duration(rng.IntN(20_000)) * time.Millisecond
	d := in(grace)
	names := []string{"sc1", "init", "sc2", "sc3", "main", "helper", "stray"}
	takes, hooks, broken := map[string]time.Duration{}, map[string]time.Duration{}, map[string]bool{}
	var states []lifecycle.ContainerState
	for _, name := range names {
		states = append(states, lifecycle.ContainerState{Name: name, Running: rng.IntN(4) > 0})
		takes[name] = time.Duration(rng.IntN(12_000)) * time.Millisecond
		hooks[name] = time.Duration(rng.IntN(30_000)) * time.Millisecond
		broken[name] = rng.IntN(8) == 0
	}
	var wg sync.WaitGroup
	for range rng.IntN(3) {
		after, left := time.Duration(rng.IntN(20_000))*time.Millisecond, time.Duration(rng.IntN(10_000))*time.Millisecond
		wg.Go(func() {
			time.Sleep(after)
			d.Shorten(time.Now().Add(left))
		})
	}
	plan := lifecycle.PlanTermination(podWithSidecars(), states, grace)

	var mu sync.Mutex
	over := map[string]time.Time{}
	stop := func(ctx context.Context, name string, grace time.Duration) error {
		mu.Lock()
		for _, s := range plan.Steps {
			for _, before := range s.After {
				if s.Container == name && time.Now().Before(d.At()) {
					require.Contains(t, over, before, "%s was stopped although %s depends on it", name, before)
				}
			}
		}
		mu.Unlock()
		require.Zero(t, grace%time.Second)
		err := errors.New("broken")
		if !broken[name] {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(grace, takes[name])):
				err = nil
			}
		}
		mu.Lock()
		defer mu.Unlock()
		over[name] = time.Now()
		return err
	}
	err := lifecycle.Terminate(t.Context(), lifecycle.Termination{
		Plan: plan, Deadline: d, Stop: stop,
		PreStop: func(ctx context.Context, name string, _ *corev1.LifecycleHandler) {
			select {
			case <-ctx.Done():
			case <-time.After(hooks[name]):
			}
		},
	})
	end := time.Now()
	wg.Wait() // Shorten after the end must not affect the deadline
	trouble := false
	for _, s := range plan.Steps {
		require.Contains(t, over, s.Container)
		trouble = trouble || broken[s.Container]
	}
	require.Equal(t, trouble, err != nil, "%v", err)
	require.LessOrEqual(t, end.Sub(d.At()), 2*time.Second)
}

// Target: 100 pods whose processes exit at once are terminated in at most 1.2 times the
// duration of the runtime's stop call.
func TestTerminate_HundredPodsConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stopTime = 200 * time.Millisecond
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
					Plan:     plan("main", "helper"),
					Deadline: in(30 * time.Second),
					Stop: func(context.Context, string, time.Duration) error {
						time.Sleep(stopTime)
						return nil
					},
				}))
			})
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), stopTime*12/10)
	})
}
