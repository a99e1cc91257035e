package fakehost_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/fakecri"
)

// containersOf returns the sandboxes and containers of a node.
func containersOf(t *testing.T, node *fakecri.Node) (all []stats.Container) {
	t.Helper()
	sandboxes, err := node.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	for _, s := range sandboxes {
		all = append(all, stats.Container{ID: s.GetId(), Pod: "uid-web", IsSandbox: true})
	}
	containers, err := node.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	for _, c := range containers {
		all = append(all, stats.Container{ID: c.GetId(), Pod: "uid-web"})
	}
	return all
}

func TestCgroups_AreThoseOfThePrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		run(t, node, "web", "hog", "job")
		time.Sleep(20*time.Second + time.Millisecond) // hog is running, job has terminated
		all := append(containersOf(t, node), stats.Container{ID: "x", Pod: "unknown"}, stats.Container{ID: "x", Pod: "uid-web"})
		u, err := fakehost.New(node).Cgroups(t.Context(), all)
		require.NoError(t, err)
		require.EqualValues(t, 8, u.Machine[stats.Cores])
		require.EqualValues(t, 32*gib, u.Machine[stats.MemoryTotal])
		paths := map[string]stats.Cgroup{}
		var hog stats.Cgroup
		for _, g := range u.Cgroups {
			paths[g.Path] = g
			if g.ContainerID != "" && len(g.Figures) > 0 {
				hog = g
			}
		}
		require.Len(t, u.Cgroups, 5, "cgroups of: root, all pods, the pod, its sandbox, and the running container")
		require.InDelta(t, 120*mib, float64(hog.Figures[stats.MemoryWorkingSet]), mib)
		require.InDelta(t, 10*float64(time.Second), float64(hog.Figures[stats.CPUUsage]), float64(time.Second))
		require.InDelta(t, 20*mib, float64(hog.Filesystems[0].UsedBytes), mib)
		require.EqualValues(t, 10*gib, hog.Filesystems[0].CapacityBytes)
		pod := paths["/kubepods/poduid-web"]
		require.EqualValues(t, "uid-web", pod.Pod)
		require.Greater(t, pod.Figures[stats.MemoryUsage], hog.Figures[stats.MemoryUsage], "the sandbox must use memory, too")
		require.Equal(t, pod.Figures[stats.MemoryUsage], paths["/"].Figures[stats.MemoryUsage])
		require.Equal(t, pod.Figures[stats.CPUUsage], paths["/kubepods"].Figures[stats.CPUUsage])
		require.EqualValues(t, 32*gib, paths["/"].Figures[stats.MemoryLimit])
		require.Positive(t, paths["/"].Filesystems[0].UsedBytes)
	})
}

// TestCgroups_SandboxHasTheNetwork checks that the sandbox has the network figures of its
// pod, unless the pod uses the host's network.
func TestCgroups_SandboxHasTheNetwork(t *testing.T) {
	node := newNode(t)
	run(t, node, "web", "hog")
	u, err := fakehost.New(node).Cgroups(t.Context(), containersOf(t, node))
	require.NoError(t, err)
	var names []string
	for _, g := range u.Cgroups {
		for _, i := range g.Interfaces {
			require.NotEmpty(t, g.ContainerID)
			names = append(names, i.Name)
		}
	}
	require.Equal(t, []string{"eth0"}, names)
}

func TestCgroups_FailIfTheRuntimeFails(t *testing.T) {
	node := newNode(t)
	run(t, node, "web", "hog")
	all := containersOf(t, node)
	require.NoError(t, node.Fail("ListContainerStats", fakecri.Fault{Err: errors.New("broken")}))
	u, err := fakehost.New(node).Cgroups(t.Context(), all)
	require.ErrorContains(t, err, "fakehost: measure containers: ")
	require.ErrorContains(t, err, "broken")
	require.Len(t, u.Cgroups, 4, "cgroups of: root, all pods, the pod and its sandbox")
}

// TestCgroups_OfNoContainers checks that the root cgroup has no usage, and has the machine's memory
// limit and disk.
func TestCgroups_OfNoContainers(t *testing.T) {
	node := newNode(t)
	run(t, node, "web", "hog")
	u, err := fakehost.New(node).Cgroups(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, u.Cgroups, 2)
	require.Equal(t, "/", u.Cgroups[0].Path)
	require.Equal(t, "/kubepods", u.Cgroups[1].Path)
	require.Equal(t, map[stats.Figure]uint64{stats.MemoryLimit: 32 * gib}, u.Cgroups[0].Figures)
	require.EqualValues(t, 10*gib, u.Cgroups[0].Filesystems[0].CapacityBytes)
	require.EqualValues(t, 1_000_000, u.Cgroups[0].Filesystems[0].Inodes)

	// The caller may modify the results.
	clear(u.Machine)
	clear(u.Cgroups[0].Figures)
	u, err = fakehost.New(node).Cgroups(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, u.Machine, 3)
	require.Len(t, u.Cgroups[1].Figures, 1)
}

// TestCgroups_EndWithThePod checks that a stopped sandbox has no cgroup.
func TestCgroups_EndWithThePod(t *testing.T) {
	node := newNode(t)
	run(t, node, "web", "hog")
	all := containersOf(t, node)
	require.NoError(t, node.StopPodSandbox(t.Context(), all[0].ID))
	u, err := fakehost.New(node).Cgroups(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, u.Cgroups, 2, "cgroups of: root and all pods")
}
