package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

var errRuntime = errors.New("the runtime is busy")

func fakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(time.Unix(1_000_000, 0)) }

// isFresh reports whether the cached status of the pod is at least as new as when.
func isFresh(t *testing.T, c *podcache.Cache, uid types.UID, when time.Time) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, _ := c.GetNewerThan(ctx, uid, when)
	return status != nil
}

func TestNew_RejectsAnInvalidConfig(t *testing.T) {
	_, err := pleg.New(pleg.Config{
		Period: -1, MaxPeriod: -1, Threshold: -1, ListTimeout: -1, InspectTimeout: -1, MaxInspections: -1,
	})
	for _, field := range []string{"Runtime", "Cache", "Handler", "Period", "MaxPeriod", "Threshold", "ListTimeout", "InspectTimeout", "MaxInspections"} {
		require.ErrorContains(t, err, "field "+field)
	}
}

func TestRelist_DeliversChanges(t *testing.T) {
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

	require.Empty(t, r.relist(), "without a change, there must be no event")

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

func TestRelist_SandboxesCountAsContainers(t *testing.T) {
	const gone, future = runtimeapi.PodSandboxState(-1), runtimeapi.PodSandboxState(77)
	for _, test := range []struct {
		from, to runtimeapi.PodSandboxState
		want     []string
	}{
		{gone, ready, []string{"a ContainerStarted s"}},
		{gone, notReady, []string{"a ContainerDied s"}},
		{gone, future, nil},
		{ready, ready, nil},
		{ready, notReady, []string{"a ContainerDied s"}},
		{ready, future, nil},
		{ready, gone, []string{"a ContainerDied s", "a ContainerRemoved s"}},
		{notReady, ready, []string{"a ContainerStarted s"}},
		{notReady, future, nil},
		{notReady, gone, []string{"a ContainerRemoved s"}},
		{future, ready, []string{"a ContainerStarted s"}},
		{future, notReady, []string{"a ContainerDied s"}},
		{future, gone, []string{"a ContainerDied s", "a ContainerRemoved s"}},
	} {
		t.Run(fmt.Sprintf("%v-%v", test.from, test.to), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakeClock())
			for _, s := range []runtimeapi.PodSandboxState{test.from, test.to} {
				r.take()
				if s == gone {
					r.node.remove("s")
				} else {
					r.node.sandbox("a", "s", s)
				}
				_, err := r.Relist(t.Context())
				require.NoError(t, err)
			}
			require.Equal(t, test.want, r.take())
		})
	}
}

func TestRelist_RemovedContainerHasDied(t *testing.T) {
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

func TestRelist_CacheIsWrittenBeforeTheEvents(t *testing.T) {
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

func TestRelist_FailedListChangesNothing(t *testing.T) {
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

func TestHealthy_DependsOnListsOnly(t *testing.T) {
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
	require.Error(t, r.Healthy(), "the relist of a pod must not make the generator healthy")
}

// The kubelet's gauge of exited containers stays at its last value.
func TestRelist_CountsFallToZero(t *testing.T) {
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

func TestRelist_OddObjects(t *testing.T) {
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
	require.Empty(t, r.take(), "the pod must be kept, because a list by label does not contain it")
}

func TestLabelSelector_ExcludesPodsOfOtherAgents(t *testing.T) {
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

func TestRelist_OrderOfListsDoesNotMatter(t *testing.T) {
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
