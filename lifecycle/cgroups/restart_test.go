package cgroups_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

// A hierarchy that was mounted later, or was missing for an earlier agent, has
// no cgroups yet. If the limits of new cgroups can't be set, the cgroups that
// have pods must not be removed.
func TestEnsure_UndoRemovesOnlyNewCgroups(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V1)
	c := newOn(t, cgroups.Config{Root: root})
	for _, pod := range []*corev1.Pod{burstable("u1"), guaranteed("u2")} {
		require.NoError(t, second(c.Ensure(t.Context(), pod, period)))
	}
	for _, gone := range []string{"hugetlb/kubepods", "pids/kubepods"} {
		require.NoError(t, os.RemoveAll(filepath.Join(root, gone)))
	}
	notRoot := filepath.Join(root, "memory/kubepods/memory.limit_in_bytes")
	require.NoError(t, os.Remove(notRoot))
	require.NoError(t, os.Mkdir(notRoot, 0o755), "nothing can be written in this directory")
	require.ErrorContains(t, second(c.Ensure(t.Context(), burstable("u1"), period)), "memory.limit_in_bytes")
	require.NoDirExists(t, filepath.Join(root, "pids/kubepods"))
	for _, there := range []string{"memory/kubepods/podu2", "cpu/kubepods/podu2", "cpu/kubepods/burstable/podu1"} {
		require.DirExists(t, filepath.Join(root, there))
	}
	require.NoError(t, os.Remove(notRoot))
	require.NoError(t, second(c.Ensure(t.Context(), burstable("u1"), period)))
	require.DirExists(t, filepath.Join(root, "pids/kubepods/burstable/podu1"))
}

// A restarted agent may have other limits, or the earlier agent may have stopped after it
// created the cgroup and before it set the limits.
func TestEnsure_LimitsOfAllPodsAfterARestart(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	limit := filepath.Join(root, "kubepods/memory.max")
	require.NoError(t, os.Mkdir(filepath.Dir(limit), 0o755))
	c := newOn(t, cgroups.Config{Root: root, Allocatable: func() corev1.ResourceList { return list("memory 1Gi") }})
	require.NoError(t, second(c.Ensure(t.Context(), bestEffort("u1"), period)))
	require.Equal(t, "1073741824", content(t, limit))

	require.NoError(t, os.WriteFile(limit, []byte("7"), 0o600))
	require.NoError(t, c.UpdateQoS(t.Context(), nil))
	require.Equal(t, "7", content(t, limit), "a limit that the administrator set must be kept")
	require.NoError(t, newOn(t, cgroups.Config{Root: root}).UpdateQoS(t.Context(), nil))
	require.Equal(t, "7", content(t, limit), "a limit that is not configured must be kept")
	c = newOn(t, cgroups.Config{Root: root, Allocatable: func() corev1.ResourceList { return list("memory 2Gi") }})
	require.NoError(t, c.UpdateQoS(t.Context(), nil))
	require.Equal(t, "2147483648", content(t, limit))
}

// The first pod may start before the agent has measured the machine.
func TestEnsure_LimitsOfAllPodsOnceTheyAreKnown(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	limit := filepath.Join(root, "kubepods/memory.max")
	var allocatable corev1.ResourceList
	c := newOn(t, cgroups.Config{Root: root, Allocatable: func() corev1.ResourceList { return allocatable }})
	require.NoError(t, second(c.Ensure(t.Context(), bestEffort("u1"), period)))
	require.Equal(t, "max", content(t, limit))
	allocatable = list("memory 1Gi")
	require.NoError(t, second(c.Ensure(t.Context(), bestEffort("u2"), period)))
	require.Equal(t, "1073741824", content(t, limit))
}

// Limited is called when the limits are set, and when they could not be set, but not while the
// resources are unknown.
func TestLimited(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	var allocatable corev1.ResourceList
	var calls []string
	c := newOn(t, cgroups.Config{
		Root: root, Allocatable: func() corev1.ResourceList { return allocatable },
		Limited: func(cgroup string, err error) { calls = append(calls, fmt.Sprint(cgroup, " ", err != nil)) },
	})
	require.NoError(t, c.UpdateQoS(t.Context(), nil))
	require.Empty(t, calls)
	allocatable = list("memory 1Gi")
	limit := filepath.Join(root, "kubepods/memory.max")
	require.NoError(t, os.Remove(limit))
	require.NoError(t, os.Mkdir(limit, 0o755))
	require.ErrorContains(t, c.UpdateQoS(t.Context(), []*corev1.Pod{burstable("u1")}), "memory.max")
	require.Equal(t, []string{"/kubepods true"}, calls)
	require.NoError(t, second(c.Ensure(t.Context(), bestEffort("u2"), period)), "pods must start without the limit")
	require.Equal(t, []string{"/kubepods true", "/kubepods true"}, calls, "each call must try again")
	require.NoError(t, os.Remove(limit))
	for range 2 {
		require.NoError(t, c.UpdateQoS(t.Context(), nil))
	}
	require.Equal(t, []string{"/kubepods true", "/kubepods true", "/kubepods false"}, calls)
}

func TestEnsure_NilPod(t *testing.T) {
	t.Parallel()
	c := newOn(t, cgroups.Config{Root: model(t, cgroups.V2)})
	require.ErrorContains(t, second(c.Ensure(t.Context(), nil, period)), "no pod")
	require.ErrorContains(t, c.Update(t.Context(), nil, period), "no pod")
	require.NoError(t, c.UpdateQoS(t.Context(), []*corev1.Pod{nil, podWith("u1", corev1.ResourceRequirements{Requests: list("cpu -9P", "memory 1")}), burstable("u2")}))
}
