//go:build linux && cgroup2

package oomwatch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
)

const (
	mount  = "/sys/fs/cgroup"
	podUID = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
)

// kernel is a watcher of this machine's kernel, for tests that cause kills.
type kernel struct {
	*testing.T
	kills  chan oomwatch.Kill
	nobody chan struct{}
}

// watchKernel watches until the test ends.
func watchKernel(t *testing.T) *kernel {
	t.Helper()
	require.Equal(t, "1", os.Getenv("CGROUP2_LAB"), "these tests exhaust the machine's memory: use make test-cgroup2")
	k := &kernel{T: t, kills: make(chan oomwatch.Kill, 100), nobody: make(chan struct{}, 100)}
	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{NoVictim: func() { k.nobody <- struct{}{} }})
	require.NoError(t, err)
	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: mount, Parent: "/kubepods"})
	require.NoError(t, err)
	watcher, err := oomwatch.New(oomwatch.Config{
		Sources: []oomwatch.Source{kmsg, counters},
		Handler: func(_ context.Context, kill oomwatch.Kill) { k.kills <- kill },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	k.await("every source to observe the kill", func() bool {
		return !slices.ContainsFunc(watcher.Sources(), func(s oomwatch.SourceStatus) bool { return !s.Watching })
	})
	return k
}

// await checks a condition every 20 ms, for at most 10 s.
func (k *kernel) await(what string, is func() bool) {
	k.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if is() {
			return
		}
		<-tick.C
	}
	require.Fail(k, "condition not reached in time: "+what)
}

// next returns the next kill and checks that it is the only one.
func (k *kernel) next() oomwatch.Kill {
	k.Helper()
	var kill oomwatch.Kill
	select {
	case kill = <-k.kills:
	case <-time.After(90 * time.Second):
		require.Fail(k, "no kill was reported")
	}
	k.Logf("told %s after the kernel's line: %s", time.Since(kill.Time).Round(time.Millisecond), kill.String())
	k.quiet()
	return kill
}

// quiet checks that no other kill is reported until the counters would have reported
// it.
func (k *kernel) quiet() {
	k.Helper()
	select {
	case again := <-k.kills:
		require.Fail(k, "the kill was reported twice", again.String())
	case <-time.After(6 * time.Second):
	}
}

// cgroup creates a cgroup with settings of the form "file=value".
func (k *kernel) cgroup(path string, settings ...string) string {
	k.Helper()
	dir := filepath.Join(mount, path)
	require.NoError(k, os.Mkdir(dir, 0o755))
	k.Cleanup(func() {
		k.await("the removal of "+dir, func() bool { return os.Remove(dir) == nil })
	})
	for _, s := range settings {
		file, value, _ := strings.Cut(s, "=")
		require.NoError(k, os.WriteFile(filepath.Join(dir, file), []byte(value), 0))
	}
	return dir
}

// pod creates the cgroups of a pod and of a container in it, and returns the
// container's cgroup.
func (k *kernel) pod(id string, podSettings, containerSettings []string) string {
	k.Helper()
	k.cgroup("kubepods", "cgroup.subtree_control=+memory")
	k.cgroup("kubepods/pod"+podUID, append([]string{"cgroup.subtree_control=+memory"}, podSettings...)...)
	return k.cgroup("kubepods/pod"+podUID+"/"+id, containerSettings...)
}

// run starts a program in a cgroup, and kills it when the test ends.
func (k *kernel) run(cgroup string, scoreAdj int, command string) *exec.Cmd {
	k.Helper()
	dir, err := os.Open(cgroup)
	require.NoError(k, err)
	defer dir.Close()
	cmd := exec.Command("/bin/busybox", "sh", "-c", fmt.Sprintf("echo %d >/proc/self/oom_score_adj; exec %s", scoreAdj, command))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	require.NoError(k, cmd.Start())
	k.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that it was already killed
		_ = cmd.Wait()
	})
	return cmd
}

// hog allocates memory without limit: an endless line of zeros.
const hog = "busybox tail -n 1 /dev/zero"

var containerID = strings.Repeat("62be", 16)

func TestCgroup2_ContainerLimit(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, nil, []string{"memory.max=32M"})
	cmd := k.run(container, 0, hog)
	kill := k.next()
	require.Equal(t, oomwatch.Cgroup, kill.Kind)
	require.Equal(t, oomwatch.ConstraintMemcg, kill.Constraint)
	require.Equal(t, types.UID(podUID), kill.PodUID)
	require.Equal(t, containerID, kill.ContainerID)
	require.Equal(t, kill.LimitCgroup, kill.VictimCgroup)
	require.Equal(t, cmd.Process.Pid, kill.PID)
	require.Greater(t, kill.AnonRSSBytes, int64(16<<20))
	require.Equal(t, 1, kill.Kills)
}

func TestCgroup2_PodLimit(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, []string{"memory.max=32M"}, nil)
	k.run(container, 0, hog)
	kill := k.next()
	require.Equal(t, oomwatch.Cgroup, kill.Kind)
	require.Equal(t, "/kubepods/pod"+podUID, kill.LimitCgroup)
	require.Equal(t, "/kubepods/pod"+podUID+"/"+containerID, kill.VictimCgroup)
	require.Equal(t, containerID, kill.ContainerID)
}

// Three processes are killed, but oom_kill rises by four: the kernel counts the chosen
// process twice.
func TestCgroup2_GroupKill(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, nil, []string{"memory.max=32M", "memory.oom.group=1"})
	k.run(container, 0, "sleep 1000")
	k.run(container, 0, "sleep 1000")
	cmd := k.run(container, 0, hog)
	kill := k.next()
	events, err := os.ReadFile(filepath.Join(container, "memory.events.local"))
	require.NoError(t, err)
	t.Logf("memory.events.local: %s", strings.ReplaceAll(strings.TrimSpace(string(events)), "\n", ", "))
	require.Equal(t, oomwatch.Group, kill.Kind)
	require.Equal(t, 3, kill.Kills)
	require.Len(t, kill.Victims, 3)
	require.Equal(t, cmd.Process.Pid, kill.PID)
}

func TestCgroup2_Machine(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, nil, nil)
	cmd := k.run(container, 1000, hog)
	kill := k.next()
	require.Equal(t, oomwatch.System, kill.Kind)
	require.Equal(t, oomwatch.ConstraintNone, kill.Constraint)
	require.Equal(t, "/", kill.LimitCgroup)
	require.Equal(t, types.UID(podUID), kill.PodUID)
	require.Equal(t, cmd.Process.Pid, kill.PID)
	require.Equal(t, 1000, kill.OOMScoreAdj)
}

func TestCgroup2_NoProcessToKill(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, nil, []string{"memory.max=32M"})
	k.run(container, -1000, hog)
	select {
	case <-k.nobody:
	case <-time.After(90 * time.Second):
		require.Fail(t, "the dump without a kill was not reported")
	}
	k.quiet()
}

// Without the log, the counters report only the cgroup and the number of kills.
func TestCgroup2_CountersAlone(t *testing.T) {
	k := watchKernel(t)
	container := k.pod(containerID, nil, []string{"memory.max=32M"})
	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: mount, Parent: "/kubepods"})
	require.NoError(t, err)
	require.Empty(t, look(counters))
	k.run(container, 0, hog)
	k.next()
	require.Equal(t, []string{"/kubepods/pod" + podUID + "/" + containerID + " 1"}, look(counters))
}
