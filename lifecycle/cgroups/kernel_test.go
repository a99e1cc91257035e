//go:build linux && (e2e || cgroup2)

package cgroups_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

// The test runs with the version of cgroups of the machine.
func TestE2EPodCgroups(t *testing.T) { podCgroups(t) }

func TestCgroup2PodCgroups(t *testing.T) {
	require.FileExists(t, "/sys/fs/cgroup/cgroup.controllers", "this machine does not use cgroup v2: use make test-cgroup2")
	podCgroups(t)
}

// podCgroups creates cgroups of pods below a test cgroup in the machine's real
// tree, and removes all of them again.
func podCgroups(t *testing.T) {
	t.Helper()
	require.Zero(t, os.Geteuid(), "these tests create cgroups: run them as root")
	const root = "/sys/fs/cgroup"
	parent := fmt.Sprintf("/kubeparts-test-%d", os.Getpid())
	c, err := cgroups.New(cgroups.Config{Parent: parent, PidsPerPod: 64, Allocatable: func() corev1.ResourceList { return list("cpu 1", "memory 512Mi") }})
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(root, "cgroup.controllers"))
	v2 := err == nil
	t.Logf("cgroup v2: %v", v2)
	t.Cleanup(func() { removeAll(t, root, parent) })

	in, err := c.Ensure(t.Context(), guaranteed("0a-1b"), period)
	require.NoError(t, err)
	require.Equal(t, parent+"/kubepods/pod0a-1b", in)
	_, err = c.Ensure(t.Context(), guaranteed("0a-1b"), period)
	require.NoError(t, err, "again")
	for _, pod := range []*corev1.Pod{burstable("2c"), bestEffort("3d")} {
		_, err := c.Ensure(t.Context(), pod, period)
		require.NoError(t, err)
	}
	require.NoError(t, c.UpdateQoS(t.Context(), []*corev1.Pod{burstable("2c")}))

	want := map[string]string{
		"cpu:kubepods/cpu.shares": "1024", "memory:kubepods/memory.limit_in_bytes": "536870912",
		"cpu:kubepods/burstable/cpu.shares": "2048", "cpu:kubepods/besteffort/pod3d/cpu.shares": "2",
		"cpu:kubepods/pod0a-1b/cpu.shares": "512", "cpu:kubepods/pod0a-1b/cpu.cfs_quota_us": "50000",
		"memory:kubepods/pod0a-1b/memory.limit_in_bytes": "67108864", "pids:kubepods/pod0a-1b/pids.max": "64",
		"memory:kubepods/burstable/pod2c/memory.limit_in_bytes": "33554432",
	}
	resized := map[string]string{"memory:kubepods/pod0a-1b/memory.limit_in_bytes": "134217728", "cpu:kubepods/pod0a-1b/cpu.shares": "1024"}
	procs := filepath.Join(root, "memory", in, "cgroup.procs")
	if v2 {
		want = map[string]string{
			":kubepods/cpu.weight": "100", ":kubepods/memory.max": "536870912", ":kubepods/burstable/cpu.weight": "174",
			":kubepods/besteffort/pod3d/cpu.weight": "1", ":kubepods/pod0a-1b/cpu.weight": "59",
			":kubepods/pod0a-1b/cpu.max": "50000 100000", ":kubepods/pod0a-1b/memory.max": "67108864",
			":kubepods/pod0a-1b/pids.max": "64", ":kubepods/burstable/pod2c/memory.max": "33554432",
		}
		resized = map[string]string{":kubepods/pod0a-1b/memory.max": "134217728", ":kubepods/pod0a-1b/cpu.weight": "100"}
		procs = filepath.Join(root, in, "container", "cgroup.procs")
		require.NoError(t, os.Mkdir(filepath.Dir(procs), 0o755))
	}
	requireFiles(t, root, parent, want)

	bigger := guaranteed("0a-1b")
	bigger.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu 1", "memory 128Mi"), Limits: list("cpu 1", "memory 128Mi")}
	require.NoError(t, c.Update(t.Context(), bigger, period))
	requireFiles(t, root, parent, resized)

	require.NotEmpty(t, podDirs(t, root, parent))
	requireBusy(t, c, procs)
	for _, uid := range []string{"0a-1b", "2c", "3d"} {
		require.NoError(t, c.Remove(t.Context(), podWith(uid).UID))
	}
	require.Empty(t, podDirs(t, root, parent))
}

// podDirs returns the directories of all pods, in cgroup v1 of all hierarchies.
func podDirs(t *testing.T, root, parent string) (dirs []string) {
	t.Helper()
	for _, hierarchy := range []string{"", "*"} {
		for _, class := range []string{"", "*"} {
			found, err := filepath.Glob(filepath.Join(root, hierarchy, parent, "kubepods", class, "pod*"))
			require.NoError(t, err)
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

func requireFiles(t *testing.T, root, parent string, want map[string]string) {
	t.Helper()
	for file, text := range want {
		controller, path, _ := strings.Cut(file, ":")
		require.Equal(t, text, content(t, root, controller, parent, path), file)
	}
}

// requireBusy starts a process in the pod's cgroup and requires that Remove
// kills the process.
func requireBusy(t *testing.T, c *cgroups.Cgroupfs, procs string) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	pid := strconv.Itoa(cmd.Process.Pid)
	require.NoError(t, os.WriteFile(procs, []byte(pid), 0o644))
	require.ErrorIs(t, c.Remove(t.Context(), "0a-1b"), cgroups.ErrBusy)
	require.EqualError(t, cmd.Wait(), "signal: killed")
}

func removeAll(t *testing.T, root, parent string) {
	t.Helper()
	trees, err := filepath.Glob(filepath.Join(root, "*", parent))
	require.NoError(t, err)
	for _, tree := range append(trees, filepath.Join(root, parent)) {
		var dirs []string
		require.NoError(t, filepath.WalkDir(tree, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append([]string{path}, dirs...)
			}
			return nil
		}))
		for _, dir := range dirs {
			require.NoError(t, os.Remove(dir))
		}
	}
}
