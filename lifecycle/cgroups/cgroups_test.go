package cgroups_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list builds a resource list from strings such as "cpu 1", "memory 1Gi".
func list(all ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, a := range all {
		name, quantity, _ := strings.Cut(a, " ")
		l[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return l
}

func podWith(uid string, all ...corev1.ResourceRequirements) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for _, r := range all {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: r})
	}
	return pod
}

func guaranteed(uid string) *corev1.Pod {
	return podWith(uid, corev1.ResourceRequirements{
		Requests: list("cpu 500m", "memory 64Mi"), Limits: list("cpu 500m", "memory 64Mi"),
	})
}

func burstable(uid string) *corev1.Pod {
	return podWith(uid, corev1.ResourceRequirements{Requests: list("cpu 2"), Limits: list("memory 32Mi")})
}

func bestEffort(uid string) *corev1.Pod { return podWith(uid, corev1.ResourceRequirements{}) }

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pod               *corev1.Pod
		cgroupfs, systemd string
	}{
		{guaranteed("0a-1b"), "/kubepods/pod0a-1b", "/kubepods.slice/kubepods-pod0a_1b.slice"},
		{burstable("0a-1b"), "/kubepods/burstable/pod0a-1b", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1b.slice"},
		{bestEffort("0a-1b"), "/kubepods/besteffort/pod0a-1b", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a_1b.slice"},
	} {
		name := cgroups.PodName(c.pod)
		require.Equal(t, c.cgroupfs, name.Cgroupfs())
		require.Equal(t, c.systemd, name.Systemd())
		for _, spelled := range []string{c.cgroupfs, c.systemd} {
			uid, ok := cgroups.UIDOf(filepath.Base(spelled))
			require.True(t, ok, spelled)
			require.Equal(t, c.pod.UID, uid, spelled)
		}
	}
	uid, ok := cgroups.UIDOf("edge-podman-kubepods-burstable-pod0a_1b.slice")
	require.True(t, ok)
	require.EqualValues(t, "0a-1b", uid, "the UID must be found for any parent cgroup")
	require.Equal(t, "/", cgroups.Name{}.Systemd())
	require.Equal(t, "/", cgroups.Name{}.Cgroupfs())
	for _, base := range []string{"", "pod", "kubepods", "burstable", "kubepods-burstable.slice", "kubepods-pod.slice", "cri-containerd-1.scope"} {
		_, ok := cgroups.UIDOf(base)
		require.False(t, ok, base)
	}
}

func TestPodLimits(t *testing.T) {
	t.Parallel()
	type req = corev1.ResourceRequirements
	const second = 100_000
	none := map[string]int64{}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		change func(*corev1.Pod)
		want   cgroups.Limits
	}{
		"nothing asked": {pod: bestEffort("u"), want: cgroups.Limits{CPUShares: 2, HugePages: none}},
		"guaranteed": {pod: guaranteed("u"), want: cgroups.Limits{
			CPUShares: 512, CPUQuotaMicros: 50_000, CPUPeriodMicros: second, MemoryBytes: 64 << 20, HugePages: none,
		}},
		"a limit on memory only": {pod: burstable("u"), want: cgroups.Limits{CPUShares: 2048, MemoryBytes: 32 << 20, HugePages: none}},
		"one container has no limit": {
			pod:  podWith("u", req{Limits: list("cpu 1", "memory 1Gi"), Requests: list("cpu 1")}, req{}),
			want: cgroups.Limits{CPUShares: 1024, HugePages: none},
		},
		"an init container has no limit": {
			pod: guaranteed("u"), change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{}} },
			want: cgroups.Limits{CPUShares: 512, HugePages: none},
		},
		"the pod as a whole has limits": {
			pod: podWith("u", req{}, req{}), change: func(p *corev1.Pod) {
				p.Spec.Resources = &req{Requests: list("cpu 1"), Limits: list("cpu 2", "memory 1Gi")}
			},
			want: cgroups.Limits{CPUShares: 1024, CPUQuotaMicros: 2 * second, CPUPeriodMicros: second, MemoryBytes: 1 << 30, HugePages: none},
		},
		"overhead": {
			pod: guaranteed("u"), change: func(p *corev1.Pod) { p.Spec.Overhead = list("cpu 500m", "memory 1Mi") },
			want: cgroups.Limits{CPUShares: 1024, CPUQuotaMicros: second, CPUPeriodMicros: second, MemoryBytes: 65 << 20, HugePages: none},
		},
		"the smallest quota": {
			pod: podWith("u", req{Requests: list("cpu 1m"), Limits: list("cpu 1m")}),
			want: cgroups.Limits{
				CPUShares: 2, CPUQuotaMicros: 1000, CPUPeriodMicros: second, HugePages: none,
			},
		},
		"more than can be counted": {
			pod: podWith("u", req{Requests: list("cpu 9P"), Limits: list("cpu 9P")}),
			want: cgroups.Limits{
				CPUShares: 262144, CPUQuotaMicros: 1 << 40 * 100, CPUPeriodMicros: second, HugePages: none,
			},
		},
		"huge pages": {
			pod:  podWith("u", req{Limits: list("hugepages-2Mi 4Mi", "hugepages-1Gi 1Gi", "hugepages-x 1")}),
			want: cgroups.Limits{CPUShares: 2, HugePages: map[string]int64{"2MB": 4 << 20, "1GB": 1 << 30}},
		},
	} {
		if c.change != nil {
			c.change(c.pod)
		}
		before := c.pod.DeepCopy()
		require.Equal(t, c.want, cgroups.PodLimits(c.pod, period), name)
		require.Equal(t, before, c.pod, "%s: the pod must not be modified", name)
	}
	require.Zero(t, cgroups.PodLimits(guaranteed("u"), 0).CPUQuotaMicros, "without a quota period, there must be no quota")
}

// The pairs are results of runc's conversion, so that pods and containers have comparable
// weights.
func TestWeight(t *testing.T) {
	t.Parallel()
	for shares, want := range map[int64]int64{-1: 1, 0: 1, 2: 1, 1024: 100, 262144: 10000, 1 << 40: 10000} {
		require.Equal(t, want, cgroups.Weight(shares), shares)
	}
	for shares := int64(2); shares < 262144; shares += 97 {
		require.LessOrEqual(t, cgroups.Weight(shares), cgroups.Weight(shares+97))
	}
}

func TestPageSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{1: "1B", 64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB", 1 << 50: "1024TB", 1500: "1500B"} {
		require.Equal(t, want, cgroups.PageSize(bytes))
	}
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := cgroups.New(cgroups.Config{Root: "cgroup", Version: 3, Parent: "/a/../b", PidsPerPod: -1})
	for _, text := range []string{
		`field Root: "cgroup" is not a clean absolute path`, `field Parent: "/a/../b" is not a clean absolute path`,
		"field Version: 3 is not a known version", "field PidsPerPod: -1 is negative",
	} {
		require.ErrorContains(t, err, text)
	}
}

// model creates ordinary directories that resemble mounted cgroups.
func model(t *testing.T, version cgroups.Version) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma\n", "cgroup.subtree_control": ""}
	if version == cgroups.V1 {
		files = map[string]string{"cpuset/cpuset.cpus": "0-1\n", "cpuset/cpuset.mems": "0\n"}
		for _, h := range []string{"cpu,cpuacct", "cpuset", "memory", "pids", "hugetlb", "systemd", "unified"} {
			files[h+"/cgroup.procs"] = ""
		}
		files["not-one/readme"] = ""
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	if version == cgroups.V1 {
		require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(root, "cpu")))
		require.NoError(t, os.Symlink("cpu,cpuacct", filepath.Join(root, "cpuacct")))
	}
	return root
}

// period is the period of CPU quotas in tests.
const period = 100 * time.Millisecond

func newOn(t *testing.T, cfg cgroups.Config) *cgroups.Cgroupfs {
	t.Helper()
	c, err := cgroups.New(cfg)
	require.NoError(t, err)
	c.SetRmdir(os.RemoveAll)
	return c
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

func TestEnsure_WritesLimitsOnV1(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V1)
	c := newOn(t, cgroups.Config{
		Root: root, Parent: "/node", PidsPerPod: 100, HugePageSizes: []int64{2 << 20}, Allocatable: func() corev1.ResourceList { return list("cpu 2", "memory 1Gi") },
	})
	parent, err := c.Ensure(t.Context(), guaranteed("u1"), period)
	require.NoError(t, err)
	require.Equal(t, "/node/kubepods/podu1", parent)
	for file, want := range map[string]string{
		"cpu/node/kubepods/cpu.shares":                           "2048",
		"memory/node/kubepods/memory.limit_in_bytes":             "1073741824",
		"cpu/node/kubepods/besteffort/cpu.shares":                "2",
		"cpu/node/kubepods/podu1/cpu.shares":                     "512",
		"cpu/node/kubepods/podu1/cpu.cfs_quota_us":               "50000",
		"cpu/node/kubepods/podu1/cpu.cfs_period_us":              "100000",
		"memory/node/kubepods/podu1/memory.limit_in_bytes":       "67108864",
		"pids/node/kubepods/podu1/pids.max":                      "100",
		"hugetlb/node/kubepods/podu1/hugetlb.2MB.limit_in_bytes": "0",
		"cpuset/node/kubepods/podu1/cpuset.cpus":                 "0-1",
		"cpuset/node/kubepods/podu1/cpuset.mems":                 "0",
	} {
		require.Equal(t, want, content(t, root, file), file)
	}
	for _, others := range []string{"systemd", "unified", "not-one"} {
		require.NoDirExists(t, filepath.Join(root, others, "node"))
	}
	require.NoError(t, c.UpdateQoS(t.Context(), []*corev1.Pod{guaranteed("u1"), burstable("u2"), burstable("u3"), bestEffort("u4")}))
	require.Equal(t, "4096", content(t, root, "cpu/node/kubepods/burstable/cpu.shares"))

	resized := guaranteed("u1")
	resized.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu 1", "memory 1Mi"), Limits: list("cpu 1", "memory 1Mi")}
	require.NoError(t, c.Update(t.Context(), resized, period))
	require.Equal(t, "1024", content(t, root, "cpu/node/kubepods/podu1/cpu.shares"))
	require.Equal(t, "1048576", content(t, root, "memory/node/kubepods/podu1/memory.limit_in_bytes"))

	require.NoError(t, c.Remove(t.Context(), "u1"))
	require.NoError(t, c.Remove(t.Context(), "u1"), "again")
	for _, h := range []string{"cpu", "memory", "pids", "cpuset", "hugetlb"} {
		require.NoDirExists(t, filepath.Join(root, h, "node/kubepods/podu1"))
		require.DirExists(t, filepath.Join(root, h, "node/kubepods/burstable"))
	}
}

// TestUpdate_OrderOfQuotaAndPeriodOnV1 makes the second of the two writes fail: the quota's
// file is replaced with a directory.
func TestUpdate_OrderOfQuotaAndPeriodOnV1(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		period time.Duration
		want   string
	}{
		"a longer period is written before the quota": {2 * period, "200000"},
		"a shorter period is written after the quota": {period / 2, "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := model(t, cgroups.V1)
			cgroup := newOn(t, cgroups.Config{Root: root})
			_, err := cgroup.Ensure(t.Context(), guaranteed("u1"), period)
			require.NoError(t, err)
			dir := filepath.Join(root, "cpu/kubepods/podu1")
			require.NoError(t, os.Remove(filepath.Join(dir, "cpu.cfs_quota_us")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "cpu.cfs_quota_us"), 0o700))
			require.ErrorContains(t, cgroup.Update(t.Context(), guaranteed("u1"), c.period), "cpu.cfs_quota_us")
			require.Equal(t, c.want, content(t, dir, "cpu.cfs_period_us"))
		})
	}
}

func TestEnsure_WritesLimitsOnV2(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	c := newOn(t, cgroups.Config{Root: root, HugePageSizes: []int64{1 << 30}})
	parent, err := c.Ensure(t.Context(), guaranteed("u1"), period)
	require.NoError(t, err)
	require.Equal(t, "/kubepods/podu1", parent)
	_, err = c.Ensure(t.Context(), bestEffort("u2"), period)
	require.NoError(t, err)
	require.NoError(t, c.UpdateQoS(t.Context(), []*corev1.Pod{burstable("u3")}))
	for file, want := range map[string]string{
		"cgroup.subtree_control":               "+cpuset +cpu +io +memory +hugetlb +pids",
		"kubepods/cpu.weight":                  "100",
		"kubepods/memory.max":                  "max",
		"kubepods/podu1/cpu.weight":            "59",
		"kubepods/podu1/cpu.max":               "50000 100000",
		"kubepods/podu1/memory.max":            "67108864",
		"kubepods/podu1/pids.max":              "max",
		"kubepods/podu1/hugetlb.1GB.max":       "0",
		"kubepods/burstable/cpu.weight":        "174",
		"kubepods/besteffort/podu2/cpu.weight": "1",
		"kubepods/besteffort/podu2/cpu.max":    "max",
	} {
		require.Equal(t, want, content(t, root, file), file)
	}
	require.NoError(t, c.Remove(t.Context(), "u2"))
	require.NoDirExists(t, filepath.Join(root, "kubepods/besteffort/podu2"))
}

func TestEnsure_ZeroPeriodSetsNoQuota(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	_, err := newOn(t, cgroups.Config{Root: root}).Ensure(t.Context(), guaranteed("u1"), 0)
	require.NoError(t, err)
	require.Equal(t, "max", content(t, root, "kubepods/podu1/cpu.max"))
}

// A UID comes from a manifest, and may contain any text.
func TestEnsure_UIDsDoNotLeadOutOfTheTree(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	c := newOn(t, cgroups.Config{Root: root})
	for _, uid := range []string{"", "/../../x", "a/b", "/", "x/.."} {
		_, err := c.Ensure(t.Context(), guaranteed(uid), period)
		require.ErrorContains(t, err, "is not a valid name of a cgroup", uid)
		require.ErrorContains(t, c.Update(t.Context(), guaranteed(uid), period), "is not a valid name of a cgroup", uid)
		require.ErrorContains(t, c.Remove(t.Context(), types.UID(uid)), "is not a valid name of a cgroup", uid)
	}
	require.NoDirExists(t, filepath.Join(root, "kubepods"))
}

func TestEnsure_CgroupThatCannotBeLimitedIsRemoved(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V1)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "hugetlb")))
	c := newOn(t, cgroups.Config{Root: root})
	pod := podWith("u1", corev1.ResourceRequirements{Limits: list("hugepages-2Mi 4Mi")})
	_, err := c.Ensure(t.Context(), pod, period)
	require.ErrorContains(t, err, "no cgroup v1 hierarchy of controller hugetlb")
	require.NoDirExists(t, filepath.Join(root, "memory/kubepods/besteffort/podu1"))
	require.DirExists(t, filepath.Join(root, "memory/kubepods/besteffort"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"ensure": second(c.Ensure(ctx, bestEffort("u2"), period)), "update": c.Update(ctx, bestEffort("u2"), period),
		"remove": c.Remove(ctx, "u2"), "classes": c.UpdateQoS(ctx, nil),
	} {
		require.ErrorIs(t, err, context.Canceled, name)
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestCgroupfs_NodesWithoutCgroups(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing")
	for _, root := range []string{empty, missing} {
		c := newOn(t, cgroups.Config{Root: root})
		require.Error(t, second(c.Ensure(t.Context(), bestEffort("u"), period)))
		require.Error(t, c.Update(t.Context(), bestEffort("u"), period))
		require.Error(t, c.Remove(t.Context(), "u"))
		require.Error(t, c.UpdateQoS(t.Context(), nil))
	}
	require.ErrorContains(t, newOn(t, cgroups.Config{Root: empty}).Remove(t.Context(), "u"), "no cgroup v1 hierarchy of controller cpu")
}

func TestUpdate_PodWithoutACgroup(t *testing.T) {
	t.Parallel()
	for _, version := range []cgroups.Version{cgroups.V1, cgroups.V2} {
		c := newOn(t, cgroups.Config{Root: model(t, version), Version: version})
		require.ErrorIs(t, c.Update(t.Context(), bestEffort("u"), period), fs.ErrNotExist)
	}
}

func TestRemove_NamesTheBusyCgroup(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	c := newOn(t, cgroups.Config{Root: root})
	_, err := c.Ensure(t.Context(), bestEffort("u1"), period)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(root, "kubepods/besteffort/podu1/container"), 0o755))
	for _, errno := range []error{syscall.EBUSY, syscall.ENOTEMPTY} {
		c.SetRmdir(func(path string) error { return &fs.PathError{Op: "rmdir", Path: path, Err: errno} })
		err := c.Remove(t.Context(), "u1")
		require.ErrorIs(t, err, cgroups.ErrBusy)
		require.ErrorContains(t, err, "podu1/container", "where")
	}
	c.SetRmdir(func(string) error { return fs.ErrNotExist })
	require.NoError(t, c.Remove(t.Context(), "u1"), "a cgroup that another program has removed must not be an error")
	broken := errors.New("broken")
	c.SetRmdir(func(string) error { return broken })
	require.ErrorIs(t, c.Remove(t.Context(), "u1"), broken)
}

func TestRemove_KillsRemainingProcesses(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V2)
	c := newOn(t, cgroups.Config{Root: root})
	_, err := c.Ensure(t.Context(), bestEffort("u1"), period)
	require.NoError(t, err)
	cmd := exec.Command("sleep", "3600")
	require.NoError(t, cmd.Start())
	container := filepath.Join(root, "kubepods/besteffort/podu1/container")
	require.NoError(t, os.Mkdir(container, 0o755))
	procs := fmt.Sprintf("%d\n0\n-1\nx\n%d\n", 1<<22+1, cmd.Process.Pid) // the first ID is above the maximum
	require.NoError(t, os.WriteFile(filepath.Join(container, "cgroup.procs"), []byte(procs), 0o600))

	c.SetRmdir(func(path string) error { return &fs.PathError{Op: "rmdir", Path: path, Err: syscall.EBUSY} })
	require.ErrorIs(t, c.Remove(t.Context(), "u1"), cgroups.ErrBusy)
	require.EqualError(t, cmd.Wait(), "signal: killed")
	c.SetRmdir(os.RemoveAll)
	require.NoError(t, c.Remove(t.Context(), "u1"))
}

// TestRemove_IncludesCgroupsOfTheRuntime also covers hierarchies without a controller: runc
// creates the cgroup of a container, and therefore the cgroup of its pod, in each hierarchy.
func TestRemove_IncludesCgroupsOfTheRuntime(t *testing.T) {
	t.Parallel()
	root := model(t, cgroups.V1)
	c := newOn(t, cgroups.Config{Root: root, Version: cgroups.V1})
	parent, err := c.Ensure(t.Context(), burstable("u"), period)
	require.NoError(t, err)
	for _, hierarchy := range []string{"systemd", "unified"} {
		require.NoDirExists(t, filepath.Join(root, hierarchy, parent), "we must not create this hierarchy's cgroup")
		require.NoError(t, os.MkdirAll(filepath.Join(root, hierarchy, parent, "container"), 0o755))
	}
	require.NoError(t, c.Remove(t.Context(), "u"))
	for _, hierarchy := range []string{"systemd", "unified"} {
		require.NoDirExists(t, filepath.Join(root, hierarchy, parent))
	}
}
