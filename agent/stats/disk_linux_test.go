package stats_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// volume is the folder of an emptyDir of the pod.
func volume(cfg stats.Config, uid types.UID, name string) string {
	return filepath.Join(cfg.NodePath, "pods", string(uid), "volumes", "kubernetes.io~empty-dir", name)
}

func logs(cfg stats.Config, name string, uid types.UID, container string) string {
	return filepath.Join(cfg.LogPath, strings.Join([]string{"ns", name, string(uid)}, "_"), container)
}

// measured calls Refresh until all pods are measured, and returns the pods of a tree.
func measured(t *testing.T, p *stats.Provider) map[types.UID]eviction.PodStats {
	t.Helper()
	for {
		r, err := p.Refresh(t.Context())
		require.NoError(t, err)
		if r.Waiting == 0 {
			break
		}
	}
	return podsOf(t, p)
}

func podsOf(t *testing.T, p *stats.Provider) map[types.UID]eviction.PodStats {
	t.Helper()
	pods, err := p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	byUID := map[types.UID]eviction.PodStats{}
	for _, s := range pods {
		byUID[s.UID] = s
	}
	return byUID
}

// blocks returns the disk usage of a file or folder, as du reports it.
func blocks(t *testing.T, paths ...string) (bytes int64) {
	t.Helper()
	for _, path := range paths {
		n, err := stats.Blocks(path)
		require.NoError(t, err)
		bytes += n
	}
	return bytes
}

func TestDiskUsage_OfAPod(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	data := volume(cfg, burstable, "data")
	write(t, strings.Repeat("x", 100_000), data, "deep", "er", "file")
	write(t, "", data, "empty")
	require.NoError(t, os.Link(filepath.Join(data, "deep", "er", "file"), filepath.Join(data, "again")))
	require.NoError(t, os.Symlink("/usr", filepath.Join(data, "away")))
	require.NoError(t, os.WriteFile(filepath.Join(data, "sparse"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(data, "sparse"), 1<<40))
	write(t, "127.0.0.1 localhost\n", cfg.NodePath, "pods", string(burstable), "etc-hosts")
	write(t, "not counted twice", cfg.NodePath, "pods", string(burstable), "volume-subpaths", "data", "file")
	write(t, "far away", cfg.NodePath, "pods", string(burstable), "volumes", "kubernetes.io~nfs", "share", "file")
	write(t, strings.Repeat("log\n", 5000), logs(cfg, "burstable", burstable, "app"), "0.log")
	write(t, strings.Repeat("log\n", 5000), logs(cfg, "burstable", burstable, "app"), "1.log")
	write(t, "pod's own", logs(cfg, "burstable", burstable, ""), "events.log")

	s := measured(t, newProvider(t, cfg))[burstable]
	require.Len(t, s.Volumes, 1, "a network volume must not be measured, because it may never respond")
	v := s.Volumes[0]
	require.Equal(t, "data", v.Name)
	require.EqualValues(t, 7, v.Inodes.Value, "the directory itself, 2 directories, 3 files, one of them with two names, and a link")
	require.Equal(t, epoch(), v.Bytes.Time)
	require.Equal(t, blocks(t, data, data+"/deep", data+"/deep/er", data+"/deep/er/file", data+"/empty", data+"/away", data+"/sparse"), v.Bytes.Value)
	require.Less(t, v.Bytes.Value, int64(1<<20), "the usage must count blocks, not file sizes")
	require.Len(t, s.Containers, 1)
	require.Equal(t, "app", s.Containers[0].Name)
	require.EqualValues(t, 3, s.Containers[0].Logs.Inodes.Value)
	require.GreaterOrEqual(t, s.Containers[0].Logs.Bytes.Value, int64(40_000))
	require.EqualValues(t, 2, s.Other.Inodes.Value, "etc-hosts, and the log next to the containers' directories")
}

func TestDiskUsage_IsMeasuredAgain(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	write(t, "x", volume(cfg, burstable, "data"), "1")
	write(t, "x", volume(cfg, bestEffort, "data"), "1")
	p := newProvider(t, cfg)
	require.EqualValues(t, 2, measured(t, p)[burstable].Volumes[0].Inodes.Value)
	write(t, "x", volume(cfg, burstable, "data"), "2")
	clock.Step(time.Minute)
	again := measured(t, p)[burstable].Volumes[0]
	require.EqualValues(t, 3, again.Inodes.Value)
	require.Equal(t, clock.Now(), again.Inodes.Time)
	require.NoError(t, os.RemoveAll(volume(cfg, burstable, "data")))
	clock.Step(time.Minute)
	require.Empty(t, measured(t, p)[burstable].Volumes)

	require.NoError(t, os.RemoveAll(filepath.Join(cfg.NodePath, "pods", string(bestEffort))))
	require.NotEmpty(t, podsOf(t, p)[bestEffort].Volumes)
	require.Empty(t, measured(t, p)[bestEffort].Volumes, "figures of removed volumes must be dropped")
	write(t, "x", volume(cfg, bestEffort, "data"), "1")
	require.Empty(t, podsOf(t, p)[bestEffort].Volumes)
	require.NotEmpty(t, measured(t, p)[bestEffort].Volumes, "a pod that started after the last call of Pods must be measured")
}

// TestRefresh_FoldersThatCannotBeListed checks that the figures of volumes keep their values
// and times, and that logs are still measured.
func TestRefresh_FoldersThatCannotBeListed(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	write(t, "x", volume(cfg, burstable, "data"), "1")
	write(t, "x", logs(cfg, "burstable", burstable, "app"), "0.log")
	write(t, "no folder of a pod", cfg.LogPath, "ns_file_uid")
	write(t, "nor this", cfg.LogPath, "ns_name_..", "file")
	write(t, "nor this", cfg.LogPath, "other", "file")
	p := newProvider(t, cfg)
	before := measured(t, p)[burstable]

	all := filepath.Join(cfg.NodePath, "pods")
	require.NoError(t, os.Rename(all, all+"-away"))
	write(t, "a file where a folder should be", all)
	write(t, "x", logs(cfg, "burstable", burstable, "app"), "1.log")
	clock.Step(time.Minute)
	r, err := p.Refresh(t.Context())
	require.ErrorContains(t, err, all)
	require.Equal(t, 1, r.Pods)
	now := podsOf(t, p)[burstable]
	require.Equal(t, before.Volumes, now.Volumes)
	require.EqualValues(t, 3, now.Containers[0].Logs.Inodes.Value)
}

// TestRefresh_HugeVolumeDoesNotDelayOtherPods gives one pod more files than many refreshes can
// examine: the other pod is measured in the first refresh, and the figure of the huge volume
// is a lower bound.
func TestRefresh_HugeVolumeDoesNotDelayOtherPods(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	cfg.WalkEntries = 2500
	for dir := range 10 {
		for file := range 500 {
			if file == 0 {
				write(t, "", volume(cfg, burstable, "data"), fmt.Sprint(dir), "0")
				continue
			}
			require.NoError(t, os.WriteFile(filepath.Join(volume(cfg, burstable, "data"), fmt.Sprint(dir), fmt.Sprint(file)), nil, 0o600))
		}
	}
	write(t, "x", volume(cfg, bestEffort, "data"), "1")
	p := newProvider(t, cfg)
	r, err := p.Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, stats.Refreshed{Entries: r.Entries, Pods: 1, Waiting: 1}, r)
	require.InDelta(t, 2500, r.Entries, 256)
	pods := podsOf(t, p)
	require.EqualValues(t, 2, pods[bestEffort].Volumes[0].Inodes.Value)
	soFar := pods[burstable].Volumes[0].Inodes.Value
	require.InDelta(t, 2500, soFar, 300, "the figure must be a lower bound")

	for refreshes := 1; ; refreshes++ {
		require.Less(t, refreshes, 10)
		r, err = p.Refresh(t.Context())
		require.NoError(t, err)
		now := podsOf(t, p)[burstable].Volumes[0].Inodes.Value
		require.GreaterOrEqual(t, now, soFar, "the figure must not shrink during the next count")
		if soFar = now; r.Waiting == 0 {
			break
		}
	}
	require.EqualValues(t, 5011, soFar)
}

func TestWalk_EndsWithItsContextAndItsPod(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	cfg.WalkEntries = 2
	for i := range 20 {
		write(t, "x", volume(cfg, burstable, "data"), fmt.Sprint(i), "file")
	}
	p := newProvider(t, cfg)
	r, err := p.Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, r.Waiting)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ = p.Refresh(ctx) // the error depends on which of two ready channels Refresh selects
	require.Zero(t, r.Entries)
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.NodePath, "pods", string(burstable))))
	r, err = p.Refresh(t.Context())
	require.NoError(t, err)
	require.Zero(t, r)
}

func TestRefresh_ReportsUnreadableFolders(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	write(t, "a file where a folder should be", cfg.NodePath, "pods", string(burstable), "volumes", "kubernetes.io~empty-dir")
	p := newProvider(t, cfg)
	r, err := p.Refresh(t.Context())
	require.ErrorContains(t, err, "kubernetes.io~empty-dir")
	require.Equal(t, 1, r.Pods, "a pod must not be retried within a refresh")
	require.Empty(t, podsOf(t, p)[burstable].Volumes)
}

// TestDiskUsage_MemoryVolume measures a volume on an in-memory filesystem, if the machine has
// one. The usage comes from the filesystem, without a walk.
func TestDiskUsage_MemoryVolume(t *testing.T) {
	t.Parallel()
	const memory = "/dev/shm"
	if !stats.IsMemory(memory) {
		return
	}
	cfg := live(t, "v2-systemd")
	dir := volume(cfg, burstable, "tmp")
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Symlink(memory, dir)) // instead of a mount
	s := measured(t, newProvider(t, cfg))[burstable]
	require.Len(t, s.Volumes, 1)
	require.True(t, s.Volumes[0].Bytes.Known())
	require.Positive(t, s.Volumes[0].Inodes.Value)
}

// A link next to a pod's logs is not followed. Its target is not counted and not opened,
// because opening could hang.
func TestRefresh_LinkInTheFolderOfLogs(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	link := logs(cfg, "burstable", burstable, "app")
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(t, os.Symlink("/dev/shm", link)) // which is in memory on most machines
	s := measured(t, newProvider(t, cfg))[burstable]
	require.EqualValues(t, 1, s.Other.Inodes.Value)
	require.Equal(t, blocks(t, link), s.Other.Bytes.Value)
}

// hung is a runtime that never responds.
type hung struct{}

func (hung) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) ListContainerStats(ctx context.Context, _ *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) ListPodSandboxStats(ctx context.Context, _ *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestRefresh_HungRuntimeDoesNotDelayDiskUsage(t *testing.T) {
	cfg := live(t, "v2-systemd")
	cfg.ImagePath, cfg.ContainerPath, cfg.Images, cfg.Runtime = "", "", hung{}, hung{}
	write(t, "x", volume(cfg, burstable, "data"), "1")
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, cfg)
		began := time.Now()
		_, err := p.Refresh(t.Context())
		require.ErrorContains(t, err, "get image filesystem info: ")
		require.ErrorContains(t, err, "container stats: ")
		require.LessOrEqual(t, time.Since(began), 20*time.Second)
		require.EqualValues(t, 2, podsOf(t, p)[burstable].Volumes[0].Inodes.Value)
		s, err := p.Summary(t.Context(), treePods())
		require.ErrorContains(t, err, "pod sandbox stats: ")
		require.Len(t, s.Pods, 4)
	})
}

// Summary uses the same definition of ephemeral storage as package eviction and the kubelet.
func TestSummary_EphemeralStorageCountsOnlyDiskVolumes(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	described := pod("a", burstable)
	described.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "pages", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
	}
	write(t, strings.Repeat("x", 10_000), volume(cfg, burstable, "data"), "1")
	write(t, strings.Repeat("x", 50_000), volume(cfg, burstable, "pages"), "1")
	write(t, strings.Repeat("x", 50_000), cfg.NodePath, "pods", string(burstable), "volumes", "kubernetes.io~secret", "secret", "1")
	p := newProvider(t, cfg)
	measured(t, p)
	s, _ := p.Summary(t.Context(), []*corev1.Pod{described})
	require.Len(t, s.Pods[0].VolumeStats, 3)
	data := volume(cfg, burstable, "data")
	require.EqualValues(t, blocks(t, data, data+"/1"), *s.Pods[0].EphemeralStorage.UsedBytes)
}

// The walk records a limited number of hard links. A pod with more hard links must not appear to
// use more disk space than it uses, because it would be evicted.
func TestWalk_HardLinksBeyondTheLimitAreNotCountedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 30 {
		name := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("x", 12_000)), 0o600))
		for j := range i % 3 {
			require.NoError(t, os.Link(name, fmt.Sprint(name, "-", j)))
		}
	}
	bytes, inodes, err := stats.Walk(t.Context(), dir, 1<<10)
	require.NoError(t, err)
	require.EqualValues(t, 31, inodes)
	for _, remember := range []int{0, 1, 7} {
		less, found, err := stats.Walk(t.Context(), dir, remember)
		require.NoError(t, err)
		require.Equal(t, inodes, found)
		require.LessOrEqual(t, less, bytes)
		require.InDelta(t, bytes, less, 100, "equal except for rounding")
	}
}

// TestDiskUsage_FolderOnInMemoryFilesystem measures a node whose files are all on one
// in-memory filesystem: the usage of a directory counts only the files in the directory.
func TestDiskUsage_FolderOnInMemoryFilesystem(t *testing.T) {
	t.Parallel()
	const memory = "/dev/shm"
	if !stats.IsMemory(memory) {
		return
	}
	dir := filepath.Join(memory, fmt.Sprintf("stats-%d", os.Getpid()))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.False(t, stats.IsMemory(dir))
	cfg := live(t, "v2-systemd")
	cfg.NodePath, cfg.LogPath = dir, filepath.Join(dir, "logs")
	write(t, strings.Repeat("x", 10_000), volume(cfg, burstable, "data"), "file")
	write(t, strings.Repeat("x", 1_000_000), dir, "other")
	s := measured(t, newProvider(t, cfg))[burstable]
	require.Len(t, s.Volumes, 1)
	require.EqualValues(t, 2, s.Volumes[0].Inodes.Value)
	require.Less(t, s.Volumes[0].Bytes.Value, int64(100_000))
}
