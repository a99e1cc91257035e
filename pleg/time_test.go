package pleg_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

func TestRelist_SystemClockStepsDoNotMatter(t *testing.T) {
	r := newRig(t, clock.RealClock{})
	r.relist()
	require.Contains(t, r.result.At.String(), " m=", "the monotonic reading must be kept")
}

func TestInspect_NewestIsByAttemptNotByTime(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "old", ready)
	r.node.sandbox("a", "new", ready) // two sandboxes are ready, because the stop of the old sandbox was missed
	r.node.sandboxes[0].CreatedAt, r.node.sandboxes[1].CreatedAt = 2000, 1000
	r.node.ips["old"], r.node.ips["new"] = []string{"10.0.0.1"}, []string{"10.0.0.2"}
	require.Len(t, r.relist(), 2)
	status, err := r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, "new", status.ReadySandbox().GetId())
	require.Equal(t, []string{"10.0.0.2"}, status.IPs)
	r.node.sandboxes[1].CreatedAt = 1 // the runtime reports another creation time for an existing sandbox
	require.Empty(t, r.relist())
	r.node.sandbox("a", "old", notReady)
	require.Equal(t, []string{"a ContainerDied old"}, r.relist())
	status, _ = r.cache.Get("a")
	require.Equal(t, []string{"10.0.0.2"}, status.IPs)
}

func TestInspect_DeadContainersAreRequestedOnce(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	for i := range 1000 {
		r.node.containers = append(r.node.containers, &runtimeapi.Container{
			Id: fmt.Sprintf("dead-%d", i), State: exited, Labels: labelsOf("a"),
		})
	}
	require.Len(t, r.relist(), 1001)
	require.Len(t, r.node.takeAsked(), 1001)
	r.node.container("a", "a1", exited)
	require.Equal(t, []string{"a ContainerDied a1"}, r.relist())
	require.Equal(t, []string{"a1"}, r.node.takeAsked())
	for i := range 1000 {
		if i%2 == 0 {
			r.node.containers[i/2] = r.node.containers[len(r.node.containers)-1-i/2]
		}
	}
	r.node.containers = r.node.containers[:501]
	events := strings.Join(r.relist(), "\n")
	require.Equal(t, 500, strings.Count(events, "ContainerRemoved"))
	require.NotContains(t, events, "ContainerDied", "events must not be repeated")
}
