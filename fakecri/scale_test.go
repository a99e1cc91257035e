package fakecri_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// TestNode_SimulatedDay is the life of a hundred pods whose containers crash and
// are restarted every minute for a day.
func TestNode_SimulatedDay(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) { c.Record = false })
	ctx := t.Context()
	var sandboxes, containers []string
	const pods = 100
	for i := range pods {
		sandbox, id := b.start(fmt.Sprint("p", i), "demo/crash:1")
		sandboxes, containers = append(sandboxes, sandbox), append(containers, id)
	}
	restarts := 0
	for range 24 * 60 {
		b.clock.Step(time.Minute)
		i := restarts % pods
		st := b.status(containers[i])
		require.Equal(t, exited, st.GetState())
		require.NoError(t, b.RemoveContainer(ctx, containers[i]))
		containers[i] = b.make(sandboxes[i], fmt.Sprint("p", i), "app", "demo/crash:1")
		require.NoError(t, b.StartContainer(ctx, containers[i]))
		restarts++
	}
	list, err := b.ListContainers(ctx, nil)
	require.NoError(t, err)
	require.Len(t, list, pods)
}

// TestServe_SimulatedDayInMemory does the same with an agent that does not use
// the node's clock. Every minute, the agent lists exited containers over gRPC
// and restarts them.
func TestServe_SimulatedDayInMemory(t *testing.T) {
	const pods, day = 100, 24 * 60
	begin, restarts := time.Now(), 0
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime, func(c *fakecri.Config) {
			c.Record = false
			c.Programs["demo/crash:1"] = fakecri.Program{Runtime: 90*time.Minute + 30*time.Second, ExitCode: 1}
		})
		for i := range pods {
			time.Sleep(time.Second)
			b.start(fmt.Sprint("p", i), "demo/crash:1")
		}
		rt, _ := serve(t, b.Node)
		exited := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: exited}}
		for range day {
			time.Sleep(time.Minute)
			ended, err := rt.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: exited})
			require.NoError(t, err)
			for _, c := range ended.GetContainers() {
				restart(t, rt, c)
				restarts++
			}
		}
	})
	require.Equal(t, pods*(day/91), restarts) // each container exits after ninety minutes, and the agent notices the exit up to a minute later
	t.Logf("%d pods, %d lists, %d restarts in %v of real time", pods, day, restarts, time.Since(begin))
}

// restart removes a container and starts its next attempt.
func restart(t *testing.T, rt runtimeapi.RuntimeServiceClient, c *runtimeapi.Container) {
	t.Helper()
	ctx := t.Context()
	_, err := rt.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()})
	require.NoError(t, err)
	pod, err := rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: c.GetPodSandboxId()})
	require.NoError(t, err)
	next, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId:  c.GetPodSandboxId(),
		Config:        containerConfig(c.GetMetadata().GetName(), "demo/crash:1", c.GetMetadata().GetAttempt()+1),
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: pod.GetStatus().GetMetadata()},
	})
	require.NoError(t, err)
	_, err = rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: next.GetContainerId()})
	require.NoError(t, err)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestContainers_UseLittleMemory checks the memory of a container, on which tests with
// thousands of pods depend. The memory includes unread events.
func TestContainers_UseLittleMemory(t *testing.T) {
	const pods, limit = 2000, 4 << 10
	before := heap()
	b := fill(t, pods)
	each := (heap() - before) / (pods * benchContainers)
	runtime.KeepAlive(b)
	t.Logf("%d bytes per container, with its share of the sandbox and of %d minutes of events", each, 5)
	require.Less(t, each, uint64(limit))
}

// TestListContainers_AllocatesOnlyItsResult compares the allocations of a list of all
// containers with the allocations of the same messages made by hand. It also
// compares a short list on a small node with a short list on a large node.
func TestListContainers_AllocatesOnlyItsResult(t *testing.T) {
	few, many := fill(t, 10), fill(t, 500)
	allocs := func(b *bed, filter *runtimeapi.ContainerFilter) int {
		return int(testing.AllocsPerRun(10, func() {
			_, err := b.ListContainers(t.Context(), filter)
			require.NoError(t, err)
		}))
	}
	short := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": "nobody"}}
	require.Equal(t, allocs(few, short), allocs(many, short))
	for _, b := range []*bed{few, many} {
		list, err := b.ListContainers(t.Context(), nil)
		require.NoError(t, err)
		const perContainer = 7 // container, metadata, image, and two maps of two each
		require.LessOrEqual(t, allocs(b, nil), perContainer*len(list)+3)
		one := &runtimeapi.ContainerFilter{PodSandboxId: list[0].GetPodSandboxId()}
		require.LessOrEqual(t, allocs(b, one), perContainer*benchContainers+6)
	}
}
