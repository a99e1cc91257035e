//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// traces is everything that a pod has on the machine while it runs.
type traces struct {
	ids   []string // IDs of its sandbox and containers, including dead ones
	netns string
}

// traces records everything that the pod has.
func (b *testbed) traces(t *testing.T, pod *corev1.Pod) traces {
	t.Helper()
	sandboxes, err := b.sandboxes(podLabels(pod))
	require.NoError(t, err)
	require.Len(t, sandboxes, 1)
	tr := traces{ids: sandboxes, netns: b.netns(t, sandboxes[0])}
	for _, c := range b.instances(t, podLabels(pod)) {
		tr.ids = append(tr.ids, c.ID)
	}
	// Verify the search itself: it must find the traces of a running pod.
	left, err := b.remains(tr)
	require.NoError(t, err)
	for _, id := range tr.ids {
		require.Contains(t, left, "ctr container "+id)
	}
	require.Contains(t, left, "network namespace "+tr.netns)
	require.Contains(t, left, "shim of "+sandboxes[0])
	require.Contains(t, strings.Join(left, "\n"), "mount "+filepath.Join(b.dir, "state"))
	return tr
}

// requireGone fails the test if anything of a pod is left.
func (b *testbed) requireGone(t *testing.T, tr traces) {
	t.Helper()
	waitFor(t, startTimeout, "everything of the pod to be removed", func() (string, bool) {
		left, err := b.remains(tr)
		if err != nil {
			return err.Error(), false
		}
		return strings.Join(left, "\n"), len(left) == 0
	})
}

// remains lists everything of a pod in the CRI, in containerd and in the kernel.
func (b *testbed) remains(tr traces) ([]string, error) {
	var left []string
	sandboxes, err := b.sandboxes(nil)
	if err != nil {
		return nil, err
	}
	containers, err := b.find(nil)
	if err != nil {
		return nil, err
	}
	for _, id := range tr.ids {
		if slices.Contains(sandboxes, id) {
			left = append(left, "sandbox "+id)
		}
		if slices.ContainsFunc(containers, func(i instance) bool { return i.ID == id }) {
			left = append(left, "container "+id)
		}
	}
	for _, kind := range []string{"task", "container"} {
		out, err := b.ctrCommand(kind+"s", "ls", "-q").Output()
		if err != nil {
			return nil, fmt.Errorf("ctr %ss ls: %w", kind, err)
		}
		for _, id := range tr.ids {
			if slices.Contains(strings.Fields(string(out)), id) {
				left = append(left, "ctr "+kind+" "+id)
			}
		}
	}
	kernel, err := tr.inKernel()
	return append(left, kernel...), err
}

// inKernel lists everything outside of containerd: mounts, the network namespace, shims.
func (tr traces) inKernel() ([]string, error) {
	var left []string
	if _, err := os.Stat(tr.netns); err == nil {
		left = append(left, "network namespace "+tr.netns)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		place := strings.Fields(line)[4]
		named := func(id string) bool { return strings.Contains(place, id) }
		if place == tr.netns || slices.ContainsFunc(tr.ids, named) {
			left = append(left, "mount "+place)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range processes {
		cmdline, err := os.ReadFile(file)
		if err != nil {
			continue // it has just exited
		}
		args := strings.Split(string(cmdline), "\x00")
		if i := slices.Index(args, "-id"); i > 0 && i+1 < len(args) && slices.Contains(tr.ids, args[i+1]) {
			left = append(left, "shim of "+args[i+1])
		}
	}
	return left, nil
}

// killStrayShims kills the shims of sandboxes that the runtime has removed, and logs them. If
// containerd cancels a start because its client has disconnected, it may leave a shim with an
// unused process. The shim exits only when containerd restarts, and the CRI has no call to
// stop it.
func (b *testbed) killStrayShims(t *testing.T) {
	t.Helper()
	known, err := b.sandboxes(nil)
	require.NoError(t, err)
	for pid, args := range b.shims(t) {
		i := slices.Index(args, "-id")
		if i < 0 || i+1 >= len(args) || slices.Contains(args, "delete") || slices.Contains(known, args[i+1]) {
			continue
		}
		t.Logf("containerd has leaked the shim of sandbox %s", args[i+1])
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			require.ErrorIs(t, err, syscall.ESRCH)
		}
	}
}

// shims returns the arguments of the bed's running shims, by process ID. It ignores shims of
// other containerds on the machine.
func (b *testbed) shims(t *testing.T) map[int][]string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	found := map[int][]string{}
	for _, file := range processes {
		cmdline, err := os.ReadFile(file)
		if err != nil {
			continue // it has just exited
		}
		args := strings.Split(string(cmdline), "\x00")
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		if strings.Contains(args[0], "containerd-shim") && slices.Contains(args, filepath.Join(b.dir, "containerd.sock")) {
			found[pid] = args
		}
	}
	return found
}

// stock is the objects that pods can leave on a machine outside of their agent's directory:
// names by kind.
type stock map[string][]string

func takeStock(t *testing.T) stock {
	t.Helper()
	s := stock{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		field := strings.Fields(line)
		s["mounts"] = append(s["mounts"], field[0]+" "+field[4]) // the ID and the directory
	}
	s["netns"], err = filepath.Glob("/run/netns/*")
	require.NoError(t, err)
	s["links"], err = filepath.Glob("/sys/class/net/*")
	require.NoError(t, err)
	for pid, args := range bed.shims(t) {
		s["shims"] = append(s["shims"], fmt.Sprint(pid, args))
	}
	leases, err := bed.ctrCommand("leases", "ls", "-q").Output()
	require.NoError(t, err)
	s["leases"] = strings.Fields(string(leases))
	return s
}

// settledStock takes stock when the runtime has finished its work for earlier tests.
func settledStock(t *testing.T) (now stock) {
	t.Helper()
	bed.settle(t)
	waitFor(t, startTimeout, "two equal stocks", seldom(time.Second, func() (string, bool) {
		bed.killStrayShims(t)
		last := now
		now = takeStock(t)
		more, less := now.moreThan(last), last.moreThan(now)
		return fmt.Sprintf("new: %q, removed: %q", more, less), len(more)+len(less) == 0
	}))
	return now
}

// moreThan returns the new objects of each kind of which s has more than before.
func (s stock) moreThan(before stock) (more []string) {
	for kind, names := range s {
		if len(names) <= len(before[kind]) {
			continue
		}
		for _, name := range names {
			if !slices.Contains(before[kind], name) {
				more = append(more, kind+" "+name)
			}
		}
	}
	return more
}
