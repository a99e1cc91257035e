package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

// The kubelet delivers no event until the inspection succeeds.
func TestInspect_FailedPodBacksOff(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.sandbox("a", "sa", ready)
	r.node.container("a", "a1", runs)
	r.relist()
	r.node.container("a", "a1", exited)
	r.node.fail("a1", errRuntime)
	r.node.takeAsked()

	res, err := r.Relist(t.Context())
	require.ErrorIs(t, err, errRuntime)
	require.Equal(t, 1, res.Inspecting)
	require.Equal(t, []string{"a ContainerDied a1"}, r.take())
	status, err := r.cache.GetNewerThan(t.Context(), "a", clk.Now())
	require.ErrorIs(t, err, errRuntime)
	require.True(t, status.Stale)
	require.Len(t, status.Containers, 1, "the known status must be kept")
	require.NoError(t, r.Healthy(), "a failing pod must not make the generator unhealthy")
	r.node.takeAsked()

	var tries []int
	for second := range 200 { // back-off: 1, 2, 4 … 60 s
		clk.Step(time.Second)
		_, _ = r.Relist(t.Context())
		if len(r.node.takeAsked()) > 0 {
			tries = append(tries, second+1)
		}
		_, err = r.cache.GetNewerThan(t.Context(), "a", clk.Now())
		require.ErrorIs(t, err, errRuntime, "readers must get the error without waiting")
	}
	require.Equal(t, []int{1, 3, 7, 15, 31, 63, 123, 183}, tries)
	require.Empty(t, r.take())
	require.Equal(t, 1, r.result.FailedPods)

	r.node.container("a", "a2", runs)
	require.Equal(t, []string{"a ContainerStarted a2"}, r.relist(), "changes must be reported at once")
	require.Empty(t, r.node.takeAsked(), "the pod must not be inspected before retryAt")
	status, err = r.cache.Get("a")
	require.ErrorIs(t, err, errRuntime)
	require.True(t, status.Stale)

	r.node.fail("a1", nil)
	clk.Step(time.Minute)
	require.Equal(t, []string{"a PodSync"}, r.relist())
	status, err = r.cache.Get("a")
	require.NoError(t, err)
	require.False(t, status.Stale)
	require.Len(t, status.Containers, 2)
	require.Equal(t, 1, r.result.FailedPods, "the result must count the failed pod at the time of the list")
	r.relist()
	require.Zero(t, r.result.FailedPods)
}

func TestInspect_FailingPodIsStillDeliveredAndDeleted(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	r.node.empty["a1"] = true
	_, err := r.Relist(t.Context())
	require.ErrorContains(t, err, "inspect pod a: status of container a1: container status is nil")
	require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
	status, err := r.cache.Get("a")
	require.EqualError(t, err, "container status is nil", "the cache must contain the runtime's own error")
	require.Equal(t, &podcache.Status{UID: "a", Stale: true}, status)

	r.node.remove("a1")
	require.Equal(t, []string{"a ContainerDied a1", "a ContainerRemoved a1"}, r.relist())
	_, err = r.cache.Get("a")
	require.NoError(t, err)
	records, dirty, _ := r.Memory()
	require.Zero(t, records+dirty)
}

func TestRequestReinspect(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(*rig)
		events []string
		asked  []string
	}{
		"no request":                      {func(*rig) {}, nil, nil},
		"a request inspects all":          {func(r *rig) { r.RequestReinspect("a") }, []string{"a PodSync"}, []string{"a1", "a2", "sa"}},
		"requests for one pod are merged": {func(r *rig) { r.RequestReinspect("a"); r.RequestReinspect("a") }, []string{"a PodSync"}, []string{"a1", "a2", "sa"}},
		"a request for a changed pod":     {func(r *rig) { r.RequestReinspect("a"); r.node.container("a", "a1", exited) }, []string{"a ContainerDied a1"}, []string{"a1", "a2", "sa"}},
		"a request for a removed pod":     {func(r *rig) { r.RequestReinspect("a"); r.node.remove("sa", "a1", "a2") }, []string{"a ContainerDied sa", "a ContainerRemoved sa", "a ContainerDied a1", "a ContainerRemoved a1", "a ContainerRemoved a2"}, nil},
		"a request for an unknown pod":    {func(r *rig) { r.RequestReinspect("z") }, nil, nil},
		"a change that makes no event":    {func(r *rig) { r.RequestReinspect("a"); r.node.container("a", "a3", created) }, []string{"a PodSync"}, []string{"a1", "a2", "a3", "sa"}},
		"a request met by a pod's relist": {func(r *rig) {
			r.RequestReinspect("a")
			require.NoError(r.t, r.RelistPod(r.t.Context(), "a"))
		}, []string{"a PodSync"}, []string{"a1", "a2", "sa"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakeClock())
			r.node.sandbox("a", "sa", ready)
			r.node.ips["sa"] = []string{"10.0.0.1"}
			r.node.container("a", "a1", runs)
			r.node.container("a", "a2", exited)
			r.relist()
			r.node.takeAsked()
			test.do(r)
			require.Equal(t, test.events, r.relist())
			require.Equal(t, test.asked, r.node.takeAsked())
			require.Empty(t, r.relist())
			_, _, requests := r.Memory()
			require.Zero(t, requests)
		})
	}
}

func TestRequestReinspect_FailureIsRepeatedCompletely(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.container("a", "a1", runs)
	r.node.container("a", "a2", exited)
	r.relist()
	r.node.takeAsked()
	r.RequestReinspect("a")
	r.node.fail("a2", errRuntime)
	_, err := r.Relist(t.Context())
	require.ErrorIs(t, err, errRuntime)
	require.Empty(t, r.take())
	r.node.takeAsked()
	r.node.fail("a2", nil)
	clk.Step(time.Second)
	require.Equal(t, []string{"a PodSync"}, r.relist())
	require.Equal(t, []string{"a1", "a2"}, r.node.takeAsked())
}

func TestInspect_OnlyChangedStatusesAreRequested(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "sa", ready)
	r.node.ips["sa"] = []string{"10.0.0.1"}
	r.node.container("a", "a1", runs)
	r.node.container("a", "a2", exited)
	r.node.container("a", "a3", created)
	r.node.sandbox("b", "sb", ready)
	r.relist()
	require.Equal(t, []string{"a1", "a2", "a3", "sa", "sb"}, r.node.takeAsked())
	r.node.container("a", "a1", exited)
	r.relist()
	require.Equal(t, []string{"a1", "a3"}, r.node.takeAsked(), "a created container must be inspected, because it may have changed")
	r.node.sandbox("b", "sb", notReady)
	r.node.container("b", "b1", runs)
	r.relist()
	require.Equal(t, []string{"b1", "sb"}, r.node.takeAsked())
	r.node.sandbox("b", "sb2", ready)
	r.relist()
	require.Equal(t, []string{"sb2"}, r.node.takeAsked())
	r.node.container("b", "b1", exited)
	r.relist()
	require.Equal(t, []string{"b1", "sb2"}, r.node.takeAsked(), "a ready sandbox must be inspected, because it may have got its address")
}

func TestInspect_StatusHasTheSandboxOfAContainer(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "old", notReady)
	r.node.container("a", "a1", exited)
	r.node.container("a", "a2", runs)
	r.node.containers[0].PodSandboxId, r.node.containers[1].PodSandboxId = "old", "new"
	r.node.sandbox("a", "new", ready)
	r.relist()
	s, err := r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a1": "old", "a2": "new"}, s.SandboxOf)
	r.node.container("a", "a2", exited) // it was already in the previous list
	r.relist()
	s, err = r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a1": "old", "a2": "new"}, s.SandboxOf)
}

func TestInspect_OmitsRemovedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		r.node.sandbox("a", "sa", ready)
		r.node.container("a", "a1", runs)
		r.node.container("a", "a2", runs)
		unblock := r.node.block("sa")
		done := make(chan error, 1)
		go func() { _, err := r.Relist(t.Context()); done <- err }()
		synctest.Wait()
		r.node.remove("a2")
		unblock()
		require.NoError(t, <-done)
		require.Len(t, r.take(), 3)
		status, err := r.cache.Get("a")
		require.NoError(t, err)
		require.Len(t, status.Containers, 1)
		require.Equal(t, []string{"a ContainerDied a2", "a ContainerRemoved a2"}, r.relist())
	})
}

func TestInspect_IPs(t *testing.T) {
	v4, dual := []string{"10.0.0.1"}, []string{"10.0.0.1", "fd00::1"}
	for _, ips := range [][]string{v4, dual} {
		r := newRig(t, fakeClock())
		get := func() []string { s, _ := r.cache.Get("a"); return s.IPs }
		r.node.sandbox("a", "s1", ready)
		r.node.ips["s1"] = ips
		r.node.container("a", "a1", runs)
		r.relist()
		require.Equal(t, ips, get())

		r.node.ips["s1"] = nil
		r.RequestReinspect("a")
		r.relist()
		require.Equal(t, ips, get(), "the addresses must be kept, because the network is removed before the sandbox")

		r.node.sandbox("a", "s1", notReady)
		r.node.container("a", "a1", exited)
		r.relist()
		require.Equal(t, ips, get(), "the addresses must be kept after the end of the sandbox")
		status, _ := r.cache.Get("a")
		require.Equal(t, []string{"n-a", "ns"}, []string{status.Name, status.Namespace})

		r.node.sandbox("a", "s2", ready)
		r.relist()
		require.Empty(t, get(), "another sandbox must not keep the addresses")
		r.node.ips["s2"] = []string{"10.0.0.9", "not an address"}
		r.node.container("a", "a2", runs)
		r.relist()
		require.Empty(t, get(), "an invalid address must invalidate all")
		r.node.ips["s2"] = []string{"", "10.0.0.9"}
		r.RequestReinspect("a")
		r.relist()
		require.Equal(t, []string{"10.0.0.9"}, get(), "without a primary address, the additional ones must be used")
		r.node.ips["s2"] = []string{"010.0.0.9"}
		r.RequestReinspect("a")
		r.relist()
		require.Equal(t, []string{"010.0.0.9"}, get(), "leading zeros must be accepted")

		r.node.sandbox("a", "s3", notReady)
		r.relist()
		require.Empty(t, get(), "only the newest sandbox counts, and it is not ready")

		r.node.remove("s3")
		r.relist()
		r.node.remove("s1", "s2", "a1", "a2")
		r.relist()
		require.Empty(t, get(), "the addresses must be deleted with the pod")
	}
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "s1", ready)
	r.node.ips["s1"] = []string{"nonsense", "10.0.0.1"}
	r.relist()
	status, _ := r.cache.Get("a")
	require.Empty(t, status.IPs)
}

// A liar is a runtime whose container statuses are modified by lie.
type liar struct {
	*node
	lie func(*runtimeapi.ContainerStatus)
}

func (l *liar) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	answer, err := l.node.ContainerStatus(ctx, id, verbose)
	if l.lie != nil && answer.GetStatus() != nil {
		l.lie(answer.Status)
	}
	return answer, err
}

// If the status were not requested again, and the list did not change, the wrong status would
// stay in the cache forever.
func TestInspect_StatusThatContradictsTheListIsRequestedAgain(t *testing.T) {
	for name, lie := range map[string]func(*runtimeapi.ContainerStatus){
		"state":        func(c *runtimeapi.ContainerStatus) { c.State = runs },
		"id":           func(c *runtimeapi.ContainerStatus) { c.Id = "another" },
		"id and state": func(c *runtimeapi.ContainerStatus) { c.Id, c.State = "another", runs },
	} {
		t.Run(name, func(t *testing.T) {
			clk := fakeClock()
			var l *liar
			r := newRig(t, clk, func(c *pleg.Config) {
				l = &liar{c.Runtime.(*node), lie}
				c.Runtime = l
			})
			r.node.sandbox("a", "sa", notReady)
			r.node.container("a", "a1", exited)
			r.relist()
			r.node.takeAsked()

			clk.Step(time.Second)
			require.Empty(t, r.relist(), "the runtime still returns the wrong status")
			l.lie = nil
			clk.Step(time.Second)
			require.Equal(t, []string{"a PodSync"}, r.relist())
			require.Equal(t, []string{"a1", "a1"}, r.node.takeAsked(), "the sandbox must not be inspected again, because its status agrees")
			status, err := r.cache.Get("a")
			require.NoError(t, err)
			require.Len(t, status.Containers, 1)
			require.Equal(t, "a1", status.Containers[0].GetId())
			require.False(t, status.Running())

			clk.Step(time.Second)
			require.Empty(t, r.relist())
			require.Empty(t, r.node.takeAsked())
			_, dirty, _ := r.Memory()
			require.Zero(t, dirty)
		})
	}
}

// TestInspect_ContainerLostBeforeItsStart checks that a container which was never started
// causes no event, but the cache is updated.
func TestInspect_ContainerLostBeforeItsStart(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.sandbox("a", "sa", ready)
	r.node.container("a", "a1", runtimeapi.ContainerState_CONTAINER_CREATED)
	r.relist()
	clk.Step(time.Second)
	r.node.container("a", "a1", runtimeapi.ContainerState_CONTAINER_UNKNOWN)
	require.Empty(t, r.relist())
	status, err := r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_UNKNOWN, status.Containers[0].GetState())
	clk.Step(time.Second)
	r.node.takeAsked()
	require.Empty(t, r.relist())
	require.Empty(t, r.node.takeAsked())
}
