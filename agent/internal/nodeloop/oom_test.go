package nodeloop_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// kernelLog is a source with old records, like the kernel's log.
type kernelLog struct {
	mu    sync.Mutex
	kills []oomwatch.Kill
	read  uint64 // the sequence number of the last emitted record
	err   error
	wake  chan struct{}
}

func newKernelLog() *kernelLog { return &kernelLog{wake: make(chan struct{}, 1)} }

func (k *kernelLog) Name() string { return "kmsg" }

func (k *kernelLog) Position() oomwatch.Position {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read == 0 {
		return oomwatch.Position{}
	}
	return oomwatch.Position{BootID: "boot", Sequence: k.read}
}

func (k *kernelLog) Watch(ctx context.Context, from oomwatch.Position, emit func(oomwatch.Observation)) error {
	k.mu.Lock()
	k.read = cmp.Or(k.read, from.Sequence)
	k.mu.Unlock()
	for {
		k.mu.Lock()
		err := k.err
		var kills []oomwatch.Kill
		for _, kill := range k.kills {
			if kill.Sequence > max(k.read, from.HandledUpTo) {
				kills = append(kills, kill)
				k.read = kill.Sequence
			}
		}
		k.mu.Unlock()
		if err != nil {
			return err
		}
		emit(oomwatch.Observation{})
		for _, kill := range kills {
			emit(oomwatch.Observation{Kill: kill})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
}

// add logs the kill of a process in a cgroup.
func (k *kernelLog) add(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kills = append(k.kills, oomwatch.Kill{
		Kind: oomwatch.Cgroup, Kills: 1, Time: time.Now(), VictimCgroup: cgroup, LimitCgroup: cgroup,
		Victim: oomwatch.Victim{Process: "java", PID: 4711}, Sequence: uint64(len(k.kills) + 1),
	})
	k.signal()
}

func (k *kernelLog) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	k.signal()
}

func (k *kernelLog) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

const webUID = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"

// killed records OOM kills with their containers.
type killed struct {
	mu  sync.Mutex
	all []string
}

func (k *killed) add(kill oomwatch.Kill, b *bed) {
	pod, container, ok := b.Victim(kill.PodUID, kill.ContainerID)
	text := "unknown"
	if ok {
		text = pod.Name + " " + container
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, text)
}

func (k *killed) list() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{}, k.all...)
}

// newOOMBed returns a bed with a kernel log and a running pod. To log a kill in this pod, the test
// adds the returned cgroup to the log.
func newOOMBed(t *testing.T) (b *bed, log *kernelLog, kills *killed, cgroup string) {
	t.Helper()
	b, log, kills = newBed(t), newKernelLog(), &killed{}
	b.cfg.Host.OOM = []oomwatch.Source{log}
	b.cfg.Observers.Killed = func(k oomwatch.Kill) { kills.add(k, b) }
	b.pods.add(webUID)
	_, container := b.run(t, webUID)
	return b, log, kills, "/kubepods/burstable/pod" + webUID + "/" + container
}

func TestOOM_KillIsReportedOnceOverRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, log, kills, cgroup := newOOMBed(t)
		stop := b.start(t)
		log.add(cgroup)
		wait(5 * time.Second)
		require.Equal(t, []string{webUID + " app"}, kills.list())
		require.Equal(t, []string{"Node node1: Starting", "pod " + webUID + ": OOMKilled"}, b.events.all())
		require.Equal(t, 1, b.log.count("the kernel OOM-killed a process"))

		wait(10 * time.Second)
		data, err := b.cfg.State.Get(t.Context(), "oom-position.json")
		require.NoError(t, err, "the position must be saved at once, so that a killed agent does not report the kill again")
		require.JSONEq(t, `{"version":1,"data":{"BootID":"boot","Sequence":1}}`, string(data), "the file must have the format of earlier agents")
		stop()
		log.add(cgroup) // while no agent runs
		again := newKernelLog()
		again.kills = log.kills
		b.cfg.Host.OOM = []oomwatch.Source{again}
		stop = b.start(t)
		wait(5 * time.Second)
		require.Len(t, kills.list(), 2, "only the second kill must be reported")
		stop()
		var at oomwatch.Position
		require.NoError(t, state.Load(t.Context(), b.cfg.State, "oom-position.json", &at))
		require.Equal(t, uint64(2), at.Sequence, "the position must be saved when Run returns")
	})
}

// A process that allocates all its memory at once may be killed before its container is
// observed.
func TestOOM_KillWaitsForItsContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		await func(b *bed) func(context.Context, types.UID, time.Time) error
		after time.Duration
		want  string
		logs  int
	}{
		"until it is observed": {func(b *bed) func(context.Context, types.UID, time.Time) error {
			return func(context.Context, types.UID, time.Time) error {
				time.Sleep(2 * time.Second)
				b.pods.change(func(p *fakePods) { p.hidden = false })
				return nil
			}
		}, 2 * time.Second, webUID + " app", 0},
		"for ten seconds": {func(*bed) func(context.Context, types.UID, time.Time) error {
			return func(ctx context.Context, _ types.UID, _ time.Time) error { <-ctx.Done(); return ctx.Err() }
		}, 10 * time.Second, webUID + " ", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, log, kills, cgroup := newOOMBed(t)
				b.pods.hidden, b.pods.awaited = true, c.await(b)
				b.start(t)
				log.add(cgroup)
				synctest.Wait()
				wait(3 * time.Second) // the watcher waits this long for related records
				for began := time.Now(); len(kills.list()) == 0; {
					require.Less(t, time.Since(began), 20*time.Second)
					wait(time.Second)
				}
				require.Equal(t, []string{c.want}, kills.list())
				require.Equal(t, c.logs, b.log.count("could not identify the container of an OOM kill"))
			})
		})
	}
}

func TestOOM_KillDuringShutdownIsReportedByTheNextAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, log, kills, cgroup := newOOMBed(t)
		b.pods.hidden = true
		b.pods.awaited = func(ctx context.Context, _ types.UID, _ time.Time) error { <-ctx.Done(); return ctx.Err() }
		stop := b.start(t)
		log.add(cgroup)
		wait(5 * time.Second)
		stop()
		require.Empty(t, kills.list())
		again := newKernelLog()
		again.kills = log.kills
		b.cfg.Host.OOM = []oomwatch.Source{again}
		b.pods.change(func(p *fakePods) { p.hidden = false })
		b.start(t)
		wait(5 * time.Second)
		require.Equal(t, []string{webUID + " app"}, kills.list())
		require.Zero(t, b.log.count("could not identify"))
	})
}

// A kill outside of pods is reported. A kill in a pod that this agent does not have is reported
// by another agent, unless this agent has taken over all pods.
func TestOOM_KillsOfTheNodeAndOfOtherAgents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takeOver bool
		want     []string
	}{
		{false, []string{"unknown", webUID + " "}},
		{true, []string{"unknown", "unknown", webUID + " "}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, log, kills, _ := newOOMBed(t)
			b.cfg.Events, b.cfg.TakeOver = nil, c.takeOver
			b.start(t)
			log.add("/system.slice/sshd.service")
			log.add("/kubepods/pod00000000-40d5-4b02-9a8f-4c3f2d7f9c11/f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef")
			log.add("/kubepods/pod" + webUID)
			wait(20 * time.Second)
			require.Equal(t, c.want, kills.list())
			require.Equal(t, len(c.want), b.log.count("the kernel OOM-killed a process"))
		})
	}
}

// A callback for a change of the checks may read the checks.
func TestOOM_FailedSourceDoesNotDeadlockChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, log, _, _ := newOOMBed(t)
		var mu sync.Mutex
		var notes []string
		b.cfg.Changed = func() {
			mu.Lock()
			defer mu.Unlock()
			if b.Loop == nil {
				return
			}
			for _, c := range b.Checks() {
				if c.Name == "oom" {
					notes = c.Notes
				}
			}
		}
		failures := 0
		b.cfg.Observers.OOM.SourceFailed = func(string, error) { failures++ }
		b.start(t)
		require.Empty(t, b.check(t, "oom").Notes)
		log.fail(errors.New("open /dev/kmsg: permission denied"))
		wait(time.Second)
		want := []string{"kmsg: open /dev/kmsg: permission denied"}
		require.Equal(t, want, b.check(t, "oom").Notes)
		mu.Lock()
		require.Equal(t, want, notes)
		mu.Unlock()
		require.NoError(t, b.check(t, "oom").Err)
		wait(10 * time.Minute)
		require.Greater(t, failures, 10)
		require.Equal(t, 1, b.log.count("could not read OOM kills from a source"), "the failure must be logged once")
		log.fail(nil)
		wait(time.Minute)
		require.Empty(t, b.check(t, "oom").Notes)
	})
}

func TestOOM_DamagedOrUnsavablePosition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, log, _, cgroup := newOOMBed(t)
		store := state.Memory()
		require.NoError(t, store.Put(t.Context(), "oom-position.json", []byte("{")))
		b.cfg.State = readOnly{store}
		b.start(t)
		require.Equal(t, 1, b.log.count("could not read the saved position in the kernel's log"))
		log.add(cgroup)
		wait(25 * time.Second)
		require.Equal(t, 2, b.log.count("could not save the position in the kernel's log"), "saving must be retried")
	})
}

func TestOOM_WithoutSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		require.Equal(t, []string{"the host has no source of OOM kills: OOM kills are not reported"}, b.check(t, "oom").Notes)
	})
}

func TestVictim_ByPodOrContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.pods.add("web")
		_, container := b.run(t, "web")
		_, orphan := b.run(t, "orphan") // no source defines the pod
		b.make(t)
		for _, c := range []struct {
			uid                        types.UID
			container, wantPod, wanted string
		}{
			{"web", container, "web", "app"},
			{"", container, "web", "app"},
			{"web", "unknown", "web", ""},
			{"", "unknown", "", ""},
			{"orphan", orphan, "", "app"},
		} {
			pod, name, ok := b.Victim(c.uid, c.container)
			require.Equal(t, c.wanted, name)
			require.Equal(t, c.wantPod != "", ok)
			if ok {
				require.Equal(t, c.wantPod, pod.Name)
			}
		}
	})
}

func TestOOM_NilSource(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.cfg.Host = &host.Host{Facts: b.cfg.Host.Facts, OOM: []oomwatch.Source{nil}}
	_, err := newLoop(b)
	require.ErrorContains(t, err, "OOM watch: field Sources[0] is nil")
}
