package pleg_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg"
)

// The kubelet drops events if its channel of 1,000 events is full.
func TestDelivery_LosesNoneOfManyEvents(t *testing.T) {
	r := newRig(t, fakeClock())
	const pods = 500
	for p := range pods {
		uid := types.UID(fmt.Sprintf("%03d", p))
		r.node.sandboxes = append(r.node.sandboxes, &runtimeapi.PodSandbox{Id: "s" + string(uid), Labels: labelsOf(uid)})
		for i := range 3 {
			r.node.containers = append(r.node.containers, &runtimeapi.Container{
				Id: fmt.Sprintf("%s-%d", uid, i), State: runs, Labels: labelsOf(uid),
			})
		}
	}
	require.Len(t, r.relist(), 4*pods)
	require.Empty(t, r.relist())
}

func TestDelivery_NextPassContinuesACancelledOne(t *testing.T) {
	want := []string{
		"a ContainerStarted a2", "a ContainerStarted a3", "a ContainerDied a1", "a ContainerRemoved a1",
		"b ContainerDied b1", "b ContainerRemoved b1",
	}
	for stop := 1; stop <= len(want); stop++ {
		r := newRig(t, fakeClock())
		r.node.container("a", "a1", runs)
		r.node.container("a", "a2", exited)
		r.node.container("b", "b1", runs)
		r.relist()
		r.node.remove("a1", "b1")
		r.node.container("a", "a2", runs)
		r.node.container("a", "a3", runs)
		ctx, cancel := context.WithCancel(t.Context())
		r.onEvent = func(pleg.Event) {
			if len(r.events) == stop {
				cancel()
			}
		}
		_, err := r.Relist(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, r.events, stop)
		r.onEvent = nil
		require.Equal(t, want, r.relist(), "relist after a cancellation after %d events", stop)
	}
}

func TestDelivery_RevertedChangeIsStillInspected(t *testing.T) {
	inspected := func() {}
	r := newRig(t, fakeClock(), func(c *pleg.Config) {
		c.Observer.PodInspected = func(types.UID, time.Duration, error) { inspected() }
	})
	r.node.container("a", "a1", runs)
	r.relist()
	r.node.container("a", "a1", exited)
	ctx, cancel := context.WithCancel(t.Context())
	inspected = cancel
	_, err := r.Relist(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, r.take())
	inspected = func() {}
	r.node.container("a", "a1", runs)
	require.Equal(t, []string{"a PodSync"}, r.relist())
	status, err := r.cache.Get("a")
	require.NoError(t, err)
	require.True(t, status.Running())
}

func TestDelivery_ReturnedPodIsStillInspected(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	r.node.container("b", "b1", runs)
	r.relist()
	r.node.remove("a1", "b1")
	ctx, cancel := context.WithCancel(t.Context())
	r.onEvent = func(pleg.Event) { cancel() }
	_, err := r.Relist(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"a ContainerDied a1"}, r.take())
	r.onEvent = nil
	r.node.container("b", "b1", runs)
	require.Equal(t, []string{"a ContainerRemoved a1", "b PodSync"}, r.relist())
	status, err := r.cache.Get("b")
	require.NoError(t, err)
	require.True(t, status.Running())
}
