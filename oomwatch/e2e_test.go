//go:build linux && e2e

package oomwatch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// real is a watcher of this machine's kernel, and cgroups of the test below one parent,
// whose processes the kernel kills. The kernel may also kill other processes of the
// machine.
type real struct {
	*testing.T
	v2     bool
	mount  string
	parent string // "/name", as the kernel logs it
	pids   []int  // of started processes

	watcher *oomwatch.Watcher
	stop    func()
	gate    chan struct{} // if not nil, reads of the log block until it is closed

	mu    sync.Mutex
	kills []oomwatch.Kill
	lost  atomic.Uint64
}

const (
	realPod       = types.UID("8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11")
	realContainer = "f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
)

func onThisKernel(t *testing.T) *real {
	t.Helper()
	require.Zero(t, os.Geteuid(), "these tests create cgroups and read the kernel's log: run them as root")
	r := &real{T: t, mount: "/sys/fs/cgroup/memory", parent: fmt.Sprintf("/kubeparts-oom-%d", os.Getpid())}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		r.v2, r.mount = true, "/sys/fs/cgroup"
	}
	r.cgroup("", 0)
	return r
}

// cgroup creates a cgroup below the parent, with a limit in MiB or no limit, and returns its
// path as the kernel logs it. The cgroup and its processes are removed when the test ends.
func (r *real) cgroup(path string, limit int) string {
	r.Helper()
	require.LessOrEqual(r, limit, 64, "tests must not use much of the machine's memory")
	cgroup := filepath.Join(r.parent, path)
	dir := filepath.Join(r.mount, cgroup)
	require.NoError(r, os.Mkdir(dir, 0o755))
	r.Cleanup(func() {
		r.await("the removal of "+dir, func() bool {
			procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for pid := range strings.FieldsSeq(string(procs)) {
				n := 0
				if _, err := fmt.Sscan(pid, &n); err == nil && n > 1 {
					_ = syscall.Kill(n, syscall.SIGKILL) // an error means that it has exited
				}
			}
			return os.Remove(dir) == nil
		})
	})
	if r.v2 {
		require.NoError(r, os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+memory"), 0))
	}
	if limit > 0 {
		file := map[bool]string{false: "memory.limit_in_bytes", true: "memory.max"}[r.v2]
		require.NoError(r, os.WriteFile(filepath.Join(dir, file), fmt.Appendf(nil, "%d", limit<<20), 0))
	}
	return cgroup
}

// pod creates the cgroups of a pod and of its container, with limits in MiB. 0 means no
// limit.
func (r *real) pod(podLimit, containerLimit int) (pod, container string) {
	r.Helper()
	pod = r.cgroup("pod"+string(realPod), podLimit)
	return pod, r.cgroup("pod"+string(realPod)+"/"+realContainer, containerLimit)
}

// run starts a shell in a cgroup.
func (r *real) run(cgroup, script string) *exec.Cmd {
	r.Helper()
	cmd := exec.Command("sh", "-c", "echo 0 >"+filepath.Join(r.mount, cgroup, "cgroup.procs")+" && "+script)
	require.NoError(r, cmd.Start())
	r.mu.Lock()
	r.pids = append(r.pids, cmd.Process.Pid)
	r.mu.Unlock()
	r.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that it was already killed
		_ = cmd.Wait()
	})
	return cmd
}

// zeros allocates memory without limit: an endless line of zeros.
const zeros = "exec tail -n 1 /dev/zero"

// watch watches until stop is called or the test ends.
func (r *real) watch(resume oomwatch.Position, change ...func(*oomwatch.Config)) {
	r.Helper()
	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{Open: r.open})
	require.NoError(r, err)
	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: r.mount, Parent: r.parent})
	require.NoError(r, err)
	config := oomwatch.Config{
		Sources: []oomwatch.Source{kmsg, counters}, Resume: resume, Handler: r.handle,
		Observer: oomwatch.Observer{LostRecords: func(n uint64) { r.lost.Add(n) }},
	}
	for _, c := range change {
		c(&config)
	}
	r.watcher, err = oomwatch.New(config)
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- r.watcher.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(r, <-done)
	})
	r.Cleanup(r.stop)
	r.await("every source to observe the kill", func() bool {
		return !slices.ContainsFunc(r.watcher.Sources(), func(s oomwatch.SourceStatus) bool { return !s.Watching })
	})
}

// heldFile is /dev/kmsg; reads block while the gate is closed.
type heldFile struct {
	*os.File
	r *real
}

func (r *real) open() (oomwatch.KmsgLog, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return heldFile{f, r}, err
}

func (f heldFile) Read(b []byte) (int, error) {
	f.r.mu.Lock()
	gate := f.r.gate
	f.r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return f.File.Read(b)
}

// handle records a kill in the test's cgroups, or of its processes.
func (r *real) handle(_ context.Context, kill oomwatch.Kill) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(kill.VictimCgroup, r.parent) || slices.Contains(r.pids, kill.PID) || kill.PID == 1 {
		r.kills = append(r.kills, kill)
		r.Logf("told %s after the kernel's line: %s kill of %d, %s %d, limit %.30s…",
			time.Since(kill.Time).Round(time.Millisecond), kill.Kind, kill.Kills, kill.Process, kill.PID, kill.LimitCgroup)
	}
}

// told waits until n kills are reported. It then checks that no other kill is reported until
// the counters would have reported it.
func (r *real) told(n int) []oomwatch.Kill {
	r.Helper()
	look := func() []oomwatch.Kill {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.kills)
	}
	r.await(fmt.Sprintf("%d kills", n), func() bool { return len(look()) >= n })
	end := time.Now().Add(6 * time.Second)
	r.await("the end of the quiet period", func() bool { return time.Now().After(end) })
	require.Len(r, look(), n)
	return look()
}

// await checks a condition every 20 ms, for at most 20 s.
func (r *real) await(what string, is func() bool) {
	r.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if is() {
			return
		}
		<-tick.C
	}
	require.Fail(r, "condition not reached in time: "+what)
}

func (r *real) requireTheContainers(kill oomwatch.Kill) {
	r.Helper()
	require.Equal(r, realPod, kill.PodUID)
	require.Equal(r, realContainer, kill.ContainerID)
}

func TestE2E_ContainerLimit(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	began := time.Now()
	cmd := r.run(container, zeros)
	kill := r.told(1)[0]
	r.requireTheContainers(kill)
	require.Equal(t, oomwatch.Cgroup, kill.Kind)
	require.Equal(t, oomwatch.ConstraintMemcg, kill.Constraint)
	require.Equal(t, container, kill.LimitCgroup)
	require.Equal(t, container, kill.VictimCgroup)
	require.Equal(t, cmd.Process.Pid, kill.PID)
	require.Equal(t, "tail", kill.Process)
	require.Greater(t, kill.AnonRSSBytes, int64(8<<20))
	require.WithinRange(t, kill.Time, began.Add(-50*time.Millisecond), time.Now())
}

func TestE2E_ChildDiesAndParentSurvives(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	parent := r.run(container, "tail -n 1 /dev/zero; exec sleep 1000")
	kill := r.told(1)[0]
	r.requireTheContainers(kill)
	require.NotEqual(t, parent.Process.Pid, kill.PID)
	require.Equal(t, "tail", kill.Process)
	require.NoError(t, parent.Process.Signal(syscall.Signal(0)))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent.Process.Pid))
	require.NoError(t, err)
	require.Equal(t, "sleep\n", string(status))
}

func TestE2E_PodLimit(t *testing.T) {
	r := onThisKernel(t)
	pod, container := r.pod(16, 0)
	r.watch(oomwatch.Position{})
	cmd := r.run(container, zeros)
	kill := r.told(1)[0]
	r.requireTheContainers(kill)
	require.Equal(t, oomwatch.Cgroup, kill.Kind)
	require.Equal(t, pod, kill.LimitCgroup)
	require.Equal(t, container, kill.VictimCgroup)
	require.Equal(t, cmd.Process.Pid, kill.PID)
}

func TestE2E_ThreeKillsInARow(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	for range 3 {
		require.Error(t, r.run(container, zeros).Wait(), "the process must be killed")
	}
	kills := r.told(3)
	for i, kill := range kills {
		r.requireTheContainers(kill)
		require.Equal(t, r.pids[i], kill.PID)
	}
}

// The kernel writes at most ten dumps in five seconds; for the other kills it logs only the
// process, and the counters supply the cgroup. On a busy machine, thirty kills may need more than five
// seconds, so only one round in five must be that fast. Each round must report all kills.
func TestE2E_ThirtyKillsInFiveSecondsWithAStoppedReader(t *testing.T) {
	for range 5 {
		took := time.Duration(0)
		if !t.Run("round", func(t *testing.T) { took = thirtyKills(t) }) || took < 5*time.Second {
			return
		}
	}
	require.Fail(t, "in no round, thirty kills needed less than five seconds")
}

// thirtyKills checks that thirty kills are reported, and returns how long the kernel needed for them.
func thirtyKills(t *testing.T) (took time.Duration) {
	t.Helper()
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	gate := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(gate) })
	r.mu.Lock()
	r.gate = gate
	r.mu.Unlock()
	began := time.Now()
	var victims []*exec.Cmd
	for range 30 {
		victims = append(victims, r.run(container, zeros))
	}
	for _, cmd := range victims {
		require.Error(t, cmd.Wait(), "the process must be killed")
	}
	took = time.Since(began)
	t.Logf("30 kills in %v", took.Round(time.Millisecond))
	kills := r.told(30)
	var pids []int
	named := 0
	for _, kill := range kills {
		r.requireTheContainers(kill)
		pids = append(pids, kill.PID)
		if kill.LimitCgroup != "" {
			named++
		}
	}
	require.ElementsMatch(t, r.pids, pids)
	t.Logf("%d of 30 kills with the kernel's dump, %d records lost", named, r.lost.Load())
	return took
}

func TestE2E_RestartReportsOnlyNewKills(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	first := r.run(container, zeros)
	require.Equal(t, first.Process.Pid, r.told(1)[0].PID)
	r.stop()
	second := r.run(container, zeros)
	require.Error(t, second.Wait(), "the process must be killed")
	position := r.watcher.Position()
	require.NotZero(t, position)
	r.watch(position)
	kills := r.told(2)
	r.requireTheContainers(kills[1])
	require.Equal(t, second.Process.Pid, kills[1].PID)
	r.stop()
	r.watch(r.watcher.Position())
	r.told(2)
}

func TestE2E_ForgedLineIsNotAKill(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{})
	log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer log.Close()
	for _, priority := range []string{"", "<3>", "<0>"} {
		for _, line := range dump(container, 1) {
			_, err := fmt.Fprint(log, priority+line)
			require.NoError(t, err)
		}
	}
	r.told(0)
	cmd := r.run(container, zeros)
	require.Equal(t, cmd.Process.Pid, r.told(1)[0].PID, "the next kill must be reported, too")
}

// The kernel's line with both cgroups is too long for one record.
func TestE2E_PathThatFillsARecord(t *testing.T) {
	r := onThisKernel(t)
	_, inner := r.pod(0, 0)
	path := strings.TrimPrefix(inner, r.parent+"/")
	for range 2 {
		path = filepath.Join(path, strings.Repeat("x", 200))
		inner = r.cgroup(path, 16)
	}
	r.watch(oomwatch.Position{})
	cmd := r.run(inner, zeros)
	kill := r.told(1)[0]
	r.requireTheContainers(kill)
	require.Equal(t, inner, kill.VictimCgroup)
	require.Equal(t, cmd.Process.Pid, kill.PID)
}

// Kills at the limits of cgroups also increase the kernel's total, which triggers a read of
// the counters.
func TestE2E_CountersAlone(t *testing.T) {
	r := onThisKernel(t)
	_, container := r.pod(0, 16)
	r.watch(oomwatch.Position{}, func(c *oomwatch.Config) { c.Sources = c.Sources[1:] })
	for range 2 {
		require.Error(t, r.run(container, zeros).Wait(), "the process must be killed")
	}
	sum := 0
	r.await("two kills", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		sum = 0
		for _, kill := range r.kills {
			r.requireTheContainers(kill)
			sum += kill.Kills
		}
		return sum >= 2
	})
	require.Equal(t, 2, sum)
}
