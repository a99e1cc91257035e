//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// limits is the kernel's limits for a process, on cgroup v1 and v2.
type limits struct {
	memory, quota, shares int64
	cgroup                string // path of the cgroup below the root of its hierarchy
}

func limitsOf(pid int) (limits, error) {
	l := limits{}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return l, err
	}
	number := func(hierarchy, file string) int64 {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", hierarchy, l.cgroup, file))
		if err != nil {
			return -2
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return -1 // max
		}
		return n
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		l.cgroup = parts[2]
		switch {
		case parts[1] == "": // the unified hierarchy, which can exist besides the others
			if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
				l.memory, l.quota, l.shares = number("", "memory.max"), number("", "cpu.max"), number("", "cpu.weight")
			}
		case parts[1] == "memory":
			l.memory = number("memory", "memory.limit_in_bytes")
		case strings.Contains(parts[1], "cpu,") || parts[1] == "cpu":
			l.quota, l.shares = number(parts[1], "cpu.cfs_quota_us"), number(parts[1], "cpu.shares")
		}
	}
	return l, nil
}

const sized = `
apiVersion: v1
kind: Pod
metadata: {name: sized, uid: 1b0ab1a4-6a4c-4b5e-93d4-0f0a3d7f6a01}
spec: {terminationGracePeriodSeconds: 2, containers: [
  {name: main, image: kubeparts.test/testserver:1, args: [sleep, "3600"], resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 250m, memory: 64Mi}}}]}
`

// TestLimits_AreSetAndChangedInPlace checks that the container's cgroup has the limits
// of the manifest, and that a change of the limits restarts no container.
func TestLimits_AreSetAndChangedInPlace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("sized.yaml", sized)
	n.start()
	pod := n.waitRunning("sized")
	before := bed.instances(t, podLabels(pod))
	pid := bed.pid(t, before[0].ID)
	l, err := limitsOf(pid)
	require.NoError(t, err)
	require.Equal(t, int64(64<<20), l.memory)
	require.Equal(t, int64(25000), l.quota)

	n.write("sized.yaml", strings.NewReplacer("cpu: 250m", "cpu: 500m", "memory: 64Mi", "memory: 128Mi").Replace(sized))
	waitFor(t, 15*time.Second, "the new limits", func() (string, bool) {
		l, err := limitsOf(pid)
		return fmt.Sprint(l, err), l.memory == 128<<20 && l.quota == 50000
	})
	after := bed.instances(t, podLabels(pod))
	require.Len(t, after, 1)
	require.Equal(t, before[0].ID, after[0].ID)
	require.True(t, after[0].running())
}

// TestPodCgroups_AreCreatedLimitedAndRemoved checks the cgroups of pods with --cgroup-parent, and that
// no cgroup is left.
func TestPodCgroups_AreCreatedLimitedAndRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	parent := "/kpbed-" + n.hostname
	t.Cleanup(func() { removeCgroups(t, parent) })
	n.write("sized.yaml", strings.ReplaceAll(sized, "6a01", "6a02"))
	n.start("--cgroup-parent", parent)
	pod := n.waitRunning("sized")
	l, err := limitsOf(bed.pid(t, bed.instances(t, podLabels(pod))[0].ID))
	require.NoError(t, err)
	require.Contains(t, l.cgroup, parent+"/kubepods/burstable/pod"+string(pod.UID)+"/")
	find := func() []string {
		dirs, err := filepath.Glob("/sys/fs/cgroup/*" + parent + "/kubepods/burstable/pod*")
		require.NoError(t, err)
		unified, err := filepath.Glob("/sys/fs/cgroup" + parent + "/kubepods/burstable/pod*")
		require.NoError(t, err)
		return append(dirs, unified...)
	}
	require.NotEmpty(t, find())
	limits := 0
	for _, dir := range find() {
		for _, file := range []string{"/memory.limit_in_bytes", "/memory.max"} {
			if text, err := os.ReadFile(dir + file); err == nil {
				limits++
				require.Equal(t, "67108864\n", string(text), "memory limit of the pod's cgroup")
			}
		}
	}
	require.Equal(t, 1, limits, "number of memory limits")
	n.remove("sized.yaml")
	n.waitGone(20*time.Second, "sized")
	n.requireNothingLeft()
	waitFor(t, 10*time.Second, "no cgroup of the pod to be left", func() (string, bool) { return fmt.Sprint(find()), len(find()) == 0 })
}

// removeCgroups removes the parent cgroups of the pods' cgroups after the pods' cgroups
// were removed.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + parent)
	require.NoError(t, err)
	for _, dir := range append(dirs, "/sys/fs/cgroup"+parent) {
		for _, below := range []string{"/kubepods/burstable", "/kubepods/besteffort", "/kubepods", ""} {
			_ = os.Remove(dir + below) // missing or non-empty cgroups are ignored
		}
	}
}

// TestActiveDeadline_FailsPodAndStopsContainer checks the kubelet's reason, too.
func TestActiveDeadline_FailsPodAndStopsContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("short.yaml", endText("short", 1, "activeDeadlineSeconds: 4, containers: ["+shell("main", "")+"]"))
	stalled := stalls(t)
	begin := time.Now() // before the pod's start time, which has whole seconds in the API
	n.start()
	pod := n.waitPod(startTimeout, "short", "to fail", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	require.Greater(t, time.Since(begin), 3*time.Second)
	require.Less(t, time.Since(pod.Status.StartTime.Time)-stalled(), 10*time.Second)
	require.Equal(t, "DeadlineExceeded", pod.Status.Reason)
	require.Equal(t, "Pod was active on the node longer than the specified deadline", pod.Status.Message)
	waitFor(t, 20*time.Second, "the pod's container to exit", func() (string, bool) {
		for _, i := range bed.instances(t, podLabels(pod)) {
			if i.running() {
				return i.String(), false
			}
		}
		return "", true
	})
}

// TestAdmission_RejectsPodsThatCannotRun checks the kubelet's reasons, and that the pods leave no
// objects or files.
func TestAdmission_RejectsPodsThatCannotRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	main := "containers: [{name: main, image: kubeparts.test/testserver:1, %s args: [sleep, \"3600\"]}]"
	for name, spec := range map[string]string{
		"OutOfcpu":          fmt.Sprintf(main, "resources: {requests: {cpu: 4k}},"),
		"NodeAffinity":      `nodeSelector: {disk: ssd}, ` + fmt.Sprintf(main, ""),
		"SysctlForbidden":   `securityContext: {sysctls: [{name: kernel.hostname, value: x}]}, ` + fmt.Sprintf(main, ""),
		"PodOSNotSupported": `os: {name: windows}, ` + fmt.Sprintf(main, ""),
		"UnsupportedFields": fmt.Sprintf(main, "resources: {limits: {example.test/gpu: 1}},"),
	} {
		n.write(strings.ToLower(name)+".yaml", endText(strings.ToLower(name), 2, spec))
	}
	n.start()
	for _, reason := range []string{"OutOfcpu", "NodeAffinity", "SysctlForbidden", "PodOSNotSupported", "UnsupportedFields"} {
		pod := n.waitPod(startTimeout, strings.ToLower(reason), "to be refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		require.Equal(t, reason, pod.Status.Reason, pod.Status.Message)
		sandboxes, err := bed.sandboxes(podLabels(pod))
		require.NoError(t, err)
		require.Empty(t, sandboxes)
	}
	n.requireNothingLeft()
}
