//go:build linux && cgroup2

package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
)

// TestCgroup2ProjectQuotas measures volumes and logs on ext4 with project quotas, as the
// kubelet creates them with LocalStorageCapacityIsolationFSQuotaMonitoring. The quotas must
// have the same figures as a walk, and nothing may be walked over.
func TestCgroup2ProjectQuotas(t *testing.T) {
	lab(t)
	const (
		disk  = "/data" // created by run.sh --disk
		files = 300
	)
	clock := testingclock.NewFakeClock(epoch())
	cfg := labConfig()
	cfg.NodePath, cfg.LogPath, cfg.Clock = filepath.Join(disk, "kubelet"), filepath.Join(disk, "logs"), clock
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(cfg.NodePath)); require.NoError(t, os.RemoveAll(cfg.LogPath)) })
	dirs := []string{
		volume(cfg, burstable, "data"), logs(cfg, "mapped", burstable, "app"),
		volume(cfg, guaranteed, "data"), logs(cfg, "host", guaranteed, "app"),
	}
	for i, dir := range dirs {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, stats.SetProject(dir, uint32(1048577+i)))
		for file := range files {
			write(t, strings.Repeat("x", 1000*(i+1)), dir, fmt.Sprint(file%7), fmt.Sprint(file))
		}
	}
	write(t, "{}", cfg.NodePath, "pods", string(burstable), "userns") // podrunner writes this file for a user namespace
	syscall.Sync()                                                    // filesystems allocate blocks only when they write
	p := newProvider(t, cfg)
	require.Equal(t, []int{3, files}, measuredBy(t, p, dirs), "number of quotas read, and examined files of the volume that the pod could have moved to another project")

	require.NoError(t, os.WriteFile(filepath.Join(dirs[0], "big"), make([]byte, 5*mebi), 0o600))
	require.NoError(t, os.Link(filepath.Join(dirs[0], "big"), filepath.Join(dirs[0], "again")))
	syscall.Sync()
	clock.Step(time.Minute)
	require.Equal(t, []int{3, files}, measuredBy(t, p, dirs))

	// A directory that shares its project, or no longer has one, is walked over.
	require.NoError(t, stats.SetProject(dirs[1], 1048577))
	require.NoError(t, stats.SetProject(dirs[3], 0))
	clock.Step(time.Minute)
	require.Equal(t, []int{0, 4 * files}, measuredBy(t, p, dirs))
}

// measuredBy measures all directories and compares the figures with du. It returns the number
// of quotas read, and the approximate number of files examined for the other directories.
func measuredBy(t *testing.T, p *stats.Provider, dirs []string) []int {
	t.Helper()
	r, err := p.Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, r.Pods)
	pods := podsOf(t, p)
	for i, u := range []struct{ bytes, inodes int64 }{
		{pods[burstable].Volumes[0].Bytes.Value, pods[burstable].Volumes[0].Inodes.Value},
		{pods[burstable].Containers[0].Logs.Bytes.Value, pods[burstable].Containers[0].Logs.Inodes.Value},
		{pods[guaranteed].Volumes[0].Bytes.Value, pods[guaranteed].Volumes[0].Inodes.Value},
		{pods[guaranteed].Containers[0].Logs.Bytes.Value, pods[guaranteed].Containers[0].Logs.Inodes.Value},
	} {
		bytes, inodes, err := stats.Walk(t.Context(), dirs[i], 1<<20)
		require.NoError(t, err)
		t.Logf("%s: %d bytes, %d inodes; du: %d, %d", dirs[i], u.bytes, u.inodes, bytes, inodes)
		require.EqualValues(t, bytes, u.bytes)
		require.EqualValues(t, inodes, u.inodes)
	}
	t.Logf("%+v", r)
	return []int{r.Quotas, r.Entries / 300 * 300}
}
