package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

var errRuntime = errors.New("the runtime is busy")

func fakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(time.Unix(1_000_000, 0)) }

// isFresh says whether the pod is at least as new as when.
func isFresh(t *testing.T, c *podcache.Cache, uid types.UID, when time.Time) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, _ := c.GetNewerThan(ctx, uid, when)
	return status != nil
}

func TestNewRefusesABadConfig(t *testing.T) {
	_, err := pleg.New(pleg.Config{
		Period: -1, MaxPeriod: -1, Threshold: -1, ListTimeout: -1, InspectTimeout: -1, MaxInspections: -1,
	})
	for _, field := range []string{"Runtime", "Cache", "Handler", "Period", "MaxPeriod", "Threshold", "ListTimeout", "InspectTimeout", "MaxInspections"} {
		require.ErrorContains(t, err, "field "+field)
	}
}

func TestRelistTellsWhatChanged(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "sa", ready)
	r.node.container("a", "a1", runs)
	r.node.container("a", "a2", exited)
	r.node.container("a", "a3", lost)
	r.node.sandbox("b", "sb", notReady)
	r.node.container("b", "b1", created)
	require.Equal(t, []string{
		"a ContainerStarted sa", "a ContainerStarted a1", "a ContainerDied a2", "b ContainerDied sb",
	}, r.relist())
	require.ElementsMatch(t, []string{"a ContainerChanged a3", "b ContainerChanged b1"}, r.hidden)

	require.Empty(t, r.relist(), "nothing changed")

	r.node.container("a", "a1", exited)
	r.node.container("a", "a3", runs)
	r.node.container("a", "a4", runs)
	r.node.remove("a2")
	r.node.container("b", "b1", runs)
	r.node.sandbox("b", "sb", ready)
	require.Equal(t, []string{
		"a ContainerDied a1", "a ContainerStarted a3", "a ContainerStarted a4", "a ContainerRemoved a2",
		"b ContainerStarted sb", "b ContainerStarted b1",
	}, r.relist())
}

func TestDeathsAreSeenEvenIfTheContainerIsGone(t *testing.T) {
	for _, relists := range []int{1, 3} {
		r := newRig(t, fakeClock())
		r.node.sandbox("a", "sa", ready)
		r.node.container("a", "a1", runs)
		r.node.container("a", "a2", exited)
		r.node.container("b", "b1", runs)
		r.node.container("b", "b2", created)
		for range relists {
			r.relist()
		}
		r.node.remove("a1", "a2", "b1", "b2")
		require.Equal(t, []string{
			"a ContainerDied a1", "a ContainerRemoved a1", "a ContainerRemoved a2",
			"b ContainerDied b1", "b ContainerRemoved b1", "b ContainerDied b2", "b ContainerRemoved b2",
		}, r.relist())
		require.Empty(t, r.relist())
	}
}

func TestCacheIsWrittenBeforeTheEvents(t *testing.T) {
	r := newRig(t, fakeClock())
	r.onEvent = func(e pleg.Event) {
		status, err := r.cache.Get(e.PodUID)
		require.NoError(t, err)
		require.Equal(t, e.Type == pleg.ContainerStarted, status.Running())
	}
	r.node.container("a", "a1", runs)
	r.relist()
	r.node.remove("a1")
	r.relist()
	status, err := r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, &podcache.Status{UID: "a"}, status)
	records, dirty, requests := r.Memory()
	require.Zero(t, records+dirty+requests)
	require.Empty(t, r.cache.Statuses())
}

// The kubelet delivers no event until the inspection works.
func TestFailedInspectionsSetThePodAside(t *testing.T) {
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
	require.Len(t, status.Containers, 1, "what was known stays")
	require.NoError(t, r.Healthy(), "one pod is not the node")
	r.node.takeAsked()

	var tries []int
	for second := range 200 { // back-off: 1, 2, 4 … 60 s
		clk.Step(time.Second)
		_, _ = r.Relist(t.Context())
		if len(r.node.takeAsked()) > 0 {
			tries = append(tries, second+1)
		}
		_, err = r.cache.GetNewerThan(t.Context(), "a", clk.Now())
		require.ErrorIs(t, err, errRuntime, "readers are told, not kept waiting")
	}
	require.Equal(t, []int{1, 3, 7, 15, 31, 63, 123, 183}, tries)
	require.Empty(t, r.take())
	require.Equal(t, 1, r.result.SetAside)

	r.node.container("a", "a2", runs)
	require.Equal(t, []string{"a ContainerStarted a2"}, r.relist(), "changes are told at once")
	require.Empty(t, r.node.takeAsked(), "but not looked at before time")
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
	require.Equal(t, 1, r.result.SetAside, "as of the list; the inspection came after")
	r.relist()
	require.Zero(t, r.result.SetAside)
}

func TestAPodThatNeverWorkedIsStillAnnouncedAndForgotten(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	r.node.empty["a1"] = true
	_, err := r.Relist(t.Context())
	require.ErrorContains(t, err, "inspect pod a: status of a1: the runtime returned no status")
	require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
	status, err := r.cache.Get("a")
	require.Error(t, err)
	require.Equal(t, &podcache.Status{UID: "a", Stale: true}, status)

	r.node.remove("a1")
	require.Equal(t, []string{"a ContainerDied a1", "a ContainerRemoved a1"}, r.relist())
	_, err = r.cache.Get("a")
	require.NoError(t, err)
	records, dirty, _ := r.Memory()
	require.Zero(t, records+dirty)
}

func TestAFailedListLeavesEverythingAsItWas(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.container("a", "a1", runs)
	r.relist()
	r.node.remove("a1")
	r.node.failLists(errRuntime)
	clk.Step(time.Second)
	_, err := r.Relist(t.Context())
	require.ErrorIs(t, err, errRuntime)
	require.Empty(t, r.take())
	require.False(t, isFresh(t, r.cache, "a", clk.Now()))
	require.Len(t, r.cache.Statuses(), 1)
	r.node.failLists(nil)
	require.Equal(t, []string{"a ContainerDied a1", "a ContainerRemoved a1"}, r.relist())
	require.True(t, isFresh(t, r.cache, "a", clk.Now()))
}

func TestHealthComesFromListing(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	require.EqualError(t, r.Healthy(), "pleg has yet to be successful")
	r.node.failLists(errRuntime)
	_, err := r.Relist(t.Context())
	require.Error(t, err)
	require.ErrorIs(t, r.Healthy(), errRuntime)
	r.node.failLists(nil)
	r.relist()
	require.NoError(t, r.Healthy())
	clk.Step(3 * time.Minute)
	require.NoError(t, r.Healthy())
	clk.Step(time.Second)
	require.EqualError(t, r.Healthy(), "pleg was last seen active 3m1s ago; threshold is 3m0s")
	r.node.failLists(errRuntime)
	_, err = r.Relist(t.Context())
	require.Error(t, err)
	require.ErrorIs(t, r.Healthy(), errRuntime)
	r.node.failLists(nil)
	require.NoError(t, r.RelistPod(t.Context(), "a"))
	require.Error(t, r.Healthy(), "a pod's relist does not count")
}

func TestReinspect(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(*rig)
		events []string
		asked  []string
	}{
		"no request":                   {func(*rig) {}, nil, nil},
		"a request inspects all":       {func(r *rig) { r.RequestReinspect("a") }, []string{"a PodSync"}, []string{"a1", "a2", "sa"}},
		"requests for one pod are one": {func(r *rig) { r.RequestReinspect("a"); r.RequestReinspect("a") }, []string{"a PodSync"}, []string{"a1", "a2", "sa"}},
		"a request for a changed pod":  {func(r *rig) { r.RequestReinspect("a"); r.node.container("a", "a1", exited) }, []string{"a ContainerDied a1"}, []string{"a1", "a2", "sa"}},
		"a request for a removed pod":  {func(r *rig) { r.RequestReinspect("a"); r.node.remove("sa", "a1", "a2") }, []string{"a ContainerDied sa", "a ContainerRemoved sa", "a ContainerDied a1", "a ContainerRemoved a1", "a ContainerRemoved a2"}, nil},
		"a request for an unknown pod": {func(r *rig) { r.RequestReinspect("z") }, nil, nil},
		"a change that makes no event": {func(r *rig) { r.RequestReinspect("a"); r.node.container("a", "a3", created) }, []string{"a PodSync"}, []string{"a1", "a2", "a3", "sa"}},
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

func TestAFailedReinspectionIsRepeatedWhole(t *testing.T) {
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

func TestOnlyWhatChangedIsAskedFor(t *testing.T) {
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
	require.Equal(t, []string{"a1", "a3"}, r.node.takeAsked(), "a created one may have changed unseen")
	r.node.sandbox("b", "sb", notReady)
	r.node.container("b", "b1", runs)
	r.relist()
	require.Equal(t, []string{"b1", "sb"}, r.node.takeAsked())
	r.node.sandbox("b", "sb2", ready)
	r.relist()
	require.Equal(t, []string{"sb2"}, r.node.takeAsked())
	r.node.container("b", "b1", exited)
	r.relist()
	require.Equal(t, []string{"b1", "sb2"}, r.node.takeAsked(), "a ready sandbox may have got its address")
}

func TestStatusSaysWhichSandboxAContainerIsIn(t *testing.T) {
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
	r.node.container("a", "a2", exited) // known from the list before
	r.relist()
	s, err = r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a1": "old", "a2": "new"}, s.SandboxOf)
}

func TestWhatVanishesBeforeItsInspectionIsLeftOut(t *testing.T) {
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

func TestIPs(t *testing.T) {
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
		require.Equal(t, ips, get(), "the network goes before the sandbox")

		r.node.sandbox("a", "s1", notReady)
		r.node.container("a", "a1", exited)
		r.relist()
		require.Equal(t, ips, get(), "kept after the end")
		status, _ := r.cache.Get("a")
		require.Equal(t, []string{"n-a", "ns"}, []string{status.Name, status.Namespace})

		r.node.sandbox("a", "s2", ready)
		r.relist()
		require.Empty(t, get(), "another sandbox has other addresses")
		r.node.ips["s2"] = []string{"10.0.0.9", "not an address"}
		r.node.container("a", "a2", runs)
		r.relist()
		require.Equal(t, []string{"10.0.0.9"}, get())

		r.node.remove("s1", "s2", "a1", "a2")
		r.relist()
		require.Empty(t, get(), "forgotten with the pod")
	}
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "s1", ready)
	r.node.ips["s1"] = []string{"nonsense", "10.0.0.1"}
	r.relist()
	status, _ := r.cache.Get("a")
	require.Empty(t, status.IPs)
}

// The kubelet's gauge of exited containers stays at its last value.
func TestCountsFallToZero(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.sandbox("a", "s1", ready)
	r.node.sandbox("b", "sb", notReady)
	r.node.sandbox("a", "s2", ready)
	r.node.container("a", "a1", runs)
	r.node.container("a", "a2", exited)
	r.node.container("b", "b1", created)
	r.relist()
	want := pleg.Result{
		At: clk.Now(), Pods: 2, RunningPods: 1, Inspecting: 2,
		RunningContainers: 1, ExitedContainers: 1, OtherContainers: 1,
	}
	require.Equal(t, want, r.result)
	want.Inspecting = 0
	r.relist()
	require.Equal(t, want, r.result)
	r.node.remove("s1", "s2", "sb", "a1", "a2", "b1")
	r.relist()
	require.Equal(t, pleg.Result{At: clk.Now()}, r.result)
}

// The kubelet drops what does not fit in its channel of 1,000.
func TestNoEventIsLostHoweverMany(t *testing.T) {
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

func TestAPassCutShortLeavesTheRestToTheNext(t *testing.T) {
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
		require.Equal(t, want, r.relist(), "cut short after %d", stop)
	}
}

func TestAChangeUndoneBeforeItWasToldIsStillLookedAt(t *testing.T) {
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

func TestAPodThatIsBackBeforeItsEndWasToldIsStillLookedAt(t *testing.T) {
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

func TestOddObjectsAreHandled(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandboxes = []*runtimeapi.PodSandbox{
		nil,
		{},
		{Id: "no metadata", Labels: map[string]string{crilabels.PodUID: "a"}},
		{Id: "no label", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "b", Name: "bn", Namespace: "bns"}},
		{Id: "foreign"},
		{Labels: map[string]string{crilabels.PodUID: "no id"}},
		{Id: "state", Labels: map[string]string{crilabels.PodUID: "a"}, State: 77},
	}
	r.node.containers = []*runtimeapi.Container{
		nil,
		{},
		{Id: "no labels", PodSandboxId: "no label", State: runs},
		{Id: "no sandbox", Labels: map[string]string{crilabels.PodUID: "c", crilabels.PodName: "cn"}, State: exited},
		{Id: "of nobody", State: runs, PodSandboxId: "missing"},
		{Id: "weird", Labels: map[string]string{crilabels.PodUID: "c"}, State: 42},
	}
	want := []string{
		"a ContainerStarted no metadata", "b ContainerStarted no label", "b ContainerStarted no labels", "c ContainerDied no sandbox",
	}
	require.Equal(t, want, r.relist())
	require.Empty(t, r.relist())
	status, err := r.cache.Get("b")
	require.NoError(t, err)
	require.Equal(t, "bn", status.Name)
	require.Len(t, status.Containers, 1)
	status, err = r.cache.Get("c")
	require.NoError(t, err)
	require.Equal(t, "cn", status.Name)

	require.NoError(t, r.RelistPod(t.Context(), "b"))
	require.Empty(t, r.take(), "a list by the label does not show it, so it stays")
}

func TestTheSelectorHidesOtherAgentsPods(t *testing.T) {
	r := newRig(t, fakeClock(), func(c *pleg.Config) { c.LabelSelector = map[string]string{crilabels.Agent: "me"} })
	mine := labelsOf("a")
	mine[crilabels.Agent] = "me"
	theirs := labelsOf("b")
	theirs[crilabels.Agent] = "you"
	r.node.sandboxes = []*runtimeapi.PodSandbox{{Id: "sa", Labels: mine}, {Id: "sb", Labels: theirs}}
	r.node.containers = []*runtimeapi.Container{{Id: "a1", State: runs, Labels: mine}, {Id: "b1", State: runs, Labels: theirs}, {Id: "c1", PodSandboxId: "sa"}}
	require.Equal(t, []string{"a ContainerStarted sa", "a ContainerStarted a1"}, r.relist())
	require.NoError(t, r.RelistPod(t.Context(), "b"))
	require.Empty(t, r.take())
	require.Len(t, r.cache.Statuses(), 1)
}

func TestTheOrderOfListsDoesNotMatter(t *testing.T) {
	r := newRig(t, fakeClock())
	for i := range 10 {
		r.node.container("a", fmt.Sprintf("a%d", i), runs)
	}
	r.relist()
	for i := range 10 {
		r.node.containers = append(r.node.containers[1:], r.node.containers[0])
		if i == 5 {
			r.node.container("a", "a3", exited)
			require.Equal(t, []string{"a ContainerDied a3"}, r.relist())
		}
		require.Empty(t, r.relist())
	}
}
