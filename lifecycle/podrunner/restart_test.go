package podrunner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// brokenStore is a store that fails while err is set.
type brokenStore struct {
	state.Store
	err error
}

func (s *brokenStore) Get(ctx context.Context, key string) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.Get(ctx, key)
}

func (s *brokenStore) Put(ctx context.Context, key string, value []byte) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Put(ctx, key, value)
}

// A restart is stored before anything is stopped, and another Runner with the same store
// completes it.
func TestRestart_IsStored(t *testing.T) {
	t.Parallel()
	store := &brokenStore{Store: state.Memory()}
	b := newBed(t, func(c *podrunner.Config) { c.State = store })
	pod := podOf(nil, "app")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.ErrorIs(t, b.runner.Restart(t.Context(), pod, b.look(pod.UID)), podrunner.ErrNoSandbox)
	require.NoError(t, b.sync(pod))
	first := b.look(pod.UID)
	require.Empty(t, b.runner.Restarting(t.Context(), first))

	store.err = errors.New("the disk is full")
	require.ErrorContains(t, b.runner.Restart(t.Context(), pod, first), "restart pod ns/pod: store the request: the disk is full")
	require.Empty(t, b.runner.Replaced(t.Context(), pod.UID), "a request that could not be stored must not be executed")
	store.err = nil
	require.NoError(t, b.runner.Restart(t.Context(), pod, first))

	// The next Runner cannot read the request at first. It must not drop the request.
	next, err := podrunner.New(podrunner.Config{
		Sandboxes: b.node, Containers: b.node, Agent: "agent", Clock: b.clock, LogRoot: b.logs, State: store,
		Images:  ifNotPresent{newImages(t, images.Config{Images: b.node, Clock: b.clock})},
		Refresh: func(_ context.Context, uid types.UID) (*podcache.Status, error) { return b.look(uid), nil },
	})
	require.NoError(t, err)
	store.err = errors.New("no disk")
	require.Empty(t, next.Replaced(t.Context(), pod.UID))
	store.err = nil
	require.Equal(t, first.Sandboxes[0].GetId(), next.Replaced(t.Context(), pod.UID))
	require.Equal(t, map[string]bool{"app": true}, next.Restarting(t.Context(), first))

	b.runner = next
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.sync(pod))
	now := b.look(pod.UID)
	require.Equal(t, uint32(1), now.ReadySandbox().GetMetadata().GetAttempt())
	require.Equal(t, 1, podcache.RestartCount(now.Active("app")))
	require.Empty(t, next.Restarting(t.Context(), now), "the restart must be complete")

	// A second restart replaces the new sandbox.
	b.clock.Step(time.Second)
	require.NoError(t, next.Restart(t.Context(), pod, now))
	require.NoError(t, b.sync(pod))
	require.Equal(t, uint32(2), b.look(pod.UID).ReadySandbox().GetMetadata().GetAttempt())
}

// When a pod is released, its restart request is deleted.
func TestRestart_IsForgottenWithThePod(t *testing.T) {
	t.Parallel()
	store := state.Memory()
	b := newBed(t, func(c *podrunner.Config) { c.State = store })
	pod := podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.runner.Restart(t.Context(), pod, b.look(pod.UID)))
	keys := func() (n int) {
		list, err := store.Keys(t.Context(), "pods/")
		require.NoError(t, err)
		return len(list)
	}
	require.Equal(t, 1, keys())
	request := podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: time.Second}
	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), request))
	require.NoError(t, b.runner.RemovePod(t.Context(), b.look(pod.UID)))
	require.Zero(t, keys())
	require.Empty(t, b.runner.Replaced(t.Context(), pod.UID))
}
