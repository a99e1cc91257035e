package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/eviction"
)

// fakeQuotas is a filesystem on which some directories have project IDs.
type fakeQuotas struct {
	ids     map[string]uint32
	alone   map[string]bool // directories whose new files do not inherit the project
	bytes   map[uint32]uint64
	inodes  map[uint32]uint64
	failing error
	asked   int
}

func (f *fakeQuotas) project(dir string) (project, bool, error) {
	if filepath.Base(dir) == "unknown" {
		return project{}, false, errors.New("no such call")
	}
	return project{7, f.ids[dir]}, f.ids[dir] != 0 && !f.alone[dir], nil
}

func (f *fakeQuotas) used(_ string, id uint32) (bytes, inodes uint64, err error) {
	f.asked++
	return f.bytes[id], f.inodes[id], f.failing
}

func TestQuotas_SharedProjectIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ids   map[string]uint32
		alone string
		want  bool
	}{
		"a project of its own":                             {ids: map[string]uint32{"/p/a": 5}, want: true},
		"no project":                                       {},
		"only the neighbour has a project":                 {ids: map[string]uint32{"/p/b": 5}},
		"a project that the neighbour has too":             {ids: map[string]uint32{"/p/a": 5, "/p/b": 5}},
		"the project of the parent directory":              {ids: map[string]uint32{"/p": 5, "/p/a": 5}},
		"another project than the parent directory":        {ids: map[string]uint32{"/p": 4, "/p/a": 5}, want: true},
		"a project that the directory's files do not have": {ids: map[string]uint32{"/p/a": 5}, alone: "/p/a"},
		"a project without counted usage":                  {ids: map[string]uint32{"/p/a": 6}},
	} {
		k := &fakeQuotas{ids: tt.ids, alone: map[string]bool{tt.alone: true}, bytes: map[uint32]uint64{5: 4096}, inodes: map[uint32]uint64{5: 3}}
		q := quotas{kernel: k, owners: map[project]map[string]types.UID{}}
		q.record("a", "/p/a")
		q.record("b", "/p/b")
		now := time.Unix(9, 0)
		u, ok := q.usage("/p/a", now)
		require.Equal(t, tt.want, ok, name)
		if ok {
			require.Equal(t, eviction.DiskUsage{Bytes: eviction.Usage{Value: 4096, Time: now}, Inodes: eviction.Usage{Value: 3, Time: now}}, u, name)
		}
		k.failing = errors.New("quotas are off")
		_, ok = q.usage("/p/a", now)
		require.False(t, ok, name)
	}
}

// A free project number is reused. Its previous directory does not count, whether it still
// exists or not.
func TestQuotas_ProjectNumberIsReused(t *testing.T) {
	t.Parallel()
	k := &fakeQuotas{ids: map[string]uint32{"/p/old": 5}, bytes: map[uint32]uint64{5: 1}, inodes: map[uint32]uint64{5: 1}}
	q := quotas{kernel: k, owners: map[project]map[string]types.UID{}}
	q.record("old", "/p/old")
	k.ids = map[string]uint32{"/p/new": 5}
	q.record("new", "/p/new")
	_, ok := q.usage("/p/new", time.Unix(9, 0))
	require.True(t, ok)
	_, ok = q.usage("/p/old", time.Unix(9, 0))
	require.False(t, ok)
	q.retain(func(uid types.UID) bool { return uid == "new" })
	require.Len(t, q.owners, 1)
	q.retain(func(types.UID) bool { return false })
	require.Empty(t, q.owners)
	q.record("x", "/p/unknown")
	require.Empty(t, q.owners)
}

// A hundred directories have quotas, and their files are not examined. Directories whose
// project the pod could have changed are walked over.
func TestQuotas_ReplaceWalks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	k := &fakeQuotas{ids: map[string]uint32{}, bytes: map[uint32]uint64{}, inodes: map[uint32]uint64{}}
	var pods []*corev1.Pod
	next := uint32(100)
	for i := range 3 {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid", i))},
		}
		pods = append(pods, pod)
		for _, dir := range []string{
			filepath.Join(root, "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "data"),
			filepath.Join(root, "logs", fmt.Sprintf("ns_%s_%s", pod.Name, pod.UID), "app"),
		} {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			for file := range 50 {
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(file)), nil, 0o600))
			}
			next++
			k.ids[dir], k.bytes[next], k.inodes[next] = next, uint64(next)<<10, uint64(next)
		}
	}
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	p, err := New(Config{
		NodePath: root, LogPath: filepath.Join(root, "logs"),
		ProcRoot: root, CgroupRoot: root, Clock: clock,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	p.quotas.kernel = k

	// Only this pod has the file userns, which the kubelet and podrunner write for a pod with
	// a user namespace.
	require.NoError(t, os.WriteFile(filepath.Join(root, "pods", "uid0", "userns"), nil, 0o600))

	r := Refreshed{}
	require.NoError(t, p.refreshDisk(t.Context(), &r))
	require.Equal(t, Refreshed{Entries: 3 + 6 + 1 + 2*50 + 2, Quotas: 4, Pods: 3}, r, "examined: the pods, their directories, one file, and two volumes")
	all, err := p.Pods(context.Background(), pods)
	require.NoError(t, err)
	for i, s := range all {
		wantVolume, wantLogs := int64(101+2*i), int64(102+2*i)
		if i > 0 {
			wantVolume = 51
		}
		require.Equal(t, wantVolume, s.Volumes[0].Inodes.Value, s.UID)
		require.Equal(t, eviction.Usage{Value: wantLogs << 10, Time: clock.Now()}, s.Containers[0].Logs.Bytes)
		require.Equal(t, wantLogs, s.Containers[0].Logs.Inodes.Value)
	}

	// If another directory gets the same project, the quota is used for neither directory.
	volume := filepath.Join(root, "pods", "uid0", "volumes", "kubernetes.io~empty-dir", "data")
	k.ids[filepath.Join(root, "logs", "ns_p2_uid2", "app")] = k.ids[volume]
	clock.Step(time.Minute)
	r = Refreshed{}
	require.NoError(t, p.refreshDisk(t.Context(), &r))
	require.Equal(t, 2, r.Quotas)
	all, err = p.Pods(context.Background(), pods)
	require.NoError(t, err)
	require.EqualValues(t, 51, all[0].Volumes[0].Inodes.Value)
	require.EqualValues(t, 51, all[2].Containers[0].Logs.Inodes.Value)
}
