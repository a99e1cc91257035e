package oomwatch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
)

func TestWatcher_ReportsAKillOnceWithinTheHold(t *testing.T) {
	bubble(t, func(n *node) {
		at := time.Now()
		n.log.print(dump("/a", 7)...)
		n.pass(120 * time.Millisecond)
		require.Equal(n, []int{7}, n.pids())
		require.True(n, at.Equal(n.told()[0].Time), "time of the kill: %s, want %s", n.told()[0].Time, at)
		n.counted.rise(n.T, "/a", 1)
		n.pass(time.Minute)
		require.Len(n, n.told(), 1)
	})
}

func TestWatcher_IgnoresKillsFromBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, log: newKernelLog(1000)}
		n.log.print(dump("/a", 7)...)
		n.start(oomwatch.Position{})
		n.pass(time.Minute)
		require.Empty(t, n.told())
		require.Equal(t, oomwatch.Position{BootID: "boot", Sequence: 4}, n.watcher.Position())
		n.log.print(dump("/a", 8)...)
		n.pass(time.Second)
		require.Equal(t, []int{8}, n.pids())
		n.stop()
	})
}

// The kubelet reports everything in the ring buffer again after each restart (kubernetes#133260).
func TestWatcher_RestartReportsNewKillsOnce(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 7)...)
		n.pass(time.Second)
		n.stop()
		position := n.watcher.Position()
		n.log.print(dump("/a", 8)...)
		n.pass(time.Hour)
		n.start(position)
		n.pass(time.Second)
		require.Equal(n, []int{7, 8}, n.pids())
		require.InDelta(n, time.Hour.Seconds(), time.Since(n.told()[1].Time).Seconds(), 5)
	})
}

func TestWatcher_NewBootStartsAtTheEndOfTheLog(t *testing.T) {
	bubble(t, func(n *node) {
		n.stop()
		n.log.print(dump("/a", 8)...)
		n.start(oomwatch.Position{BootID: "another", Sequence: 3})
		n.pass(time.Second)
		require.Empty(n, n.told())
	})
}

// The kubelet's watcher stops permanently at the first overrun.
func TestWatcher_OverrunIsCountedAndReadingContinues(t *testing.T) {
	var lost uint64
	bubble(t, func(n *node) {
		n.log.print("a line")
		n.pass(time.Second)
		n.log.mu.Lock() // blocks reads
		n.log.records, n.log.first = nil, n.log.first+500
		n.log.mu.Unlock()
		n.log.print(dump("/a", 7)...)
		n.pass(time.Second)
		require.Equal(n, []int{7}, n.pids())
		require.Equal(n, oomwatch.Lost{Records: 499}, n.told()[0].Lost)
		require.EqualValues(n, 499, lost)
	}, func(c *oomwatch.Config) { c.Observer.LostRecords = func(n uint64) { lost += n } })
}

func TestWatcher_FailedLogIsReopenedWithBackOff(t *testing.T) {
	var failures []time.Time
	bubble(t, func(n *node) {
		n.log.fail(errors.New("gone"))
		n.pass(45 * time.Second)
		var gaps []time.Duration
		for i := range failures[1:] {
			gaps = append(gaps, failures[i+1].Sub(failures[i]))
		}
		require.Equal(n, []time.Duration{
			100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
			3200 * time.Millisecond, 6400 * time.Millisecond, 12800 * time.Millisecond,
		}, gaps)
		sources := n.watcher.Sources()
		require.Equal(n, "kmsg", sources[0].Name)
		require.False(n, sources[0].Watching)
		require.EqualError(n, sources[0].Err, "open the kernel's log: gone")
		require.Equal(n, oomwatch.SourceStatus{Name: "counted", Watching: true}, sources[1])

		n.log.fail(nil)
		n.log.print(dump("/a", 7)...) // while the log is not read
		n.pass(30 * time.Second)
		require.Equal(n, []int{7}, n.pids())
		require.True(n, n.watcher.Sources()[0].Watching)
	}, func(c *oomwatch.Config) {
		c.Observer.SourceFailed = func(string, error) { failures = append(failures, time.Now()) }
	})
}

func TestWatcher_KillOnlyInCountersIsReportedAfterTheWindow(t *testing.T) {
	bubble(t, func(n *node) {
		n.counted.rise(n.T, "/a", 2)
		n.pass(2 * time.Second)
		require.Empty(n, n.told())
		n.pass(2 * time.Second)
		require.Len(n, n.told(), 1)
		require.Equal(n, 2, n.told()[0].Kills)
		require.Zero(n, n.told()[0].PID)
	})
}

func TestWatcher_CounterBeforeTheLogIsOneKill(t *testing.T) {
	bubble(t, func(n *node) {
		n.counted.rise(n.T, "/a", 1)
		n.pass(time.Second)
		n.log.print(dump("/a", 7)...)
		n.pass(time.Minute)
		require.Equal(n, []int{7}, n.pids())
	})
}

func TestWatcher_LateLineIsNotASecondKill(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.hold(true)
		n.log.print(dump("/a", 7)...)
		n.counted.rise(n.T, "/a", 1)
		n.pass(10 * time.Second)
		n.log.hold(false)
		n.pass(time.Minute)
		require.Equal(n, []int{0}, n.pids())
		n.log.print(dump("/a", 8)...)
		n.pass(time.Minute)
		require.Equal(n, []int{0, 8}, n.pids())
	})
}

func TestWatcher_CounterSuppliesAMissingCgroup(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 7)[3])
		n.pass(time.Second)
		n.counted.rise(n.T, "/a/b", 1)
		n.pass(time.Minute)
		require.Equal(n, []int{7}, n.pids())
		require.Equal(n, "/a/b", n.told()[0].VictimCgroup)
	})
}

func TestWatcher_KillWithoutCgroupIsReportedWithoutCounters(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 7)[3])
		n.pass(4 * time.Second)
		require.Equal(n, []int{7}, n.pids())
	})
}

// After an overrun the log has only the last kills; the counters have all of them.
func TestWatcher_CountersSupplyKillsMissingInTheLog(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 7)...)
		n.log.print(dump("/a", 8)...)
		n.counted.rise(n.T, "/a", 30)
		n.pass(time.Minute)
		total := 0
		for _, k := range n.told() {
			total += k.Kills
		}
		require.Equal(n, 30, total)
		require.Len(n, n.told(), 3)
	})
}

func TestWatcher_GroupKillCountsTheChosenProcessTwice(t *testing.T) {
	bubble(t, func(n *node) {
		d := dump("/a", 7)
		n.log.print(d...)
		n.log.print("Tasks in /a are going to be killed due to memory.oom.group set",
			dump("/a", 5)[3], dump("/a", 6)[3], d[3])
		n.pass(time.Second)
		n.counted.rise(n.T, "/a", 4)
		n.pass(time.Minute)
		require.Len(n, n.told(), 1)
		require.Equal(n, oomwatch.Group, n.told()[0].Kind)
		require.Equal(n, 3, n.told()[0].Kills)
		require.Equal(n, 7, n.told()[0].PID)
	})
}

func TestWatcher_SlowHandlerDropsOnlyCountedKills(t *testing.T) {
	dropped := 0
	bubble(t, func(n *node) {
		gate := make(chan struct{})
		n.setGate(gate)
		for pid := range 10 {
			n.log.print(dump("/a", pid+1)...)
		}
		n.pass(time.Second)
		require.Equal(n, 5, dropped) // one kill is being handled, four are queued
		close(gate)
		n.pass(time.Second)
		require.Equal(n, []int{1, 2, 3, 4, 5}, n.pids())
		n.log.print(dump("/a", 11)...)
		n.pass(time.Second)
		require.Equal(n, oomwatch.Lost{Kills: 5}, n.told()[5].Lost)
	}, func(c *oomwatch.Config) {
		c.QueueSize = 4
		c.Observer.DroppedKill = func(oomwatch.Kill) { dropped++ }
	})
}

// A delayed reader does not treat unread records as silence.
func TestWatcher_DelayedReaderReportsAGroupAsOne(t *testing.T) {
	bubble(t, func(n *node) {
		d := dump("/a", 7)
		n.log.print(d...)
		n.pass(50 * time.Millisecond)
		n.log.hold(true)
		n.log.print("Tasks in /a are going to be killed due to memory.oom.group set", dump("/a", 5)[3], d[3])
		n.pass(time.Second)
		n.log.hold(false)
		n.pass(time.Second)
		require.Len(n, n.told(), 1)
		require.Equal(n, 2, n.told()[0].Kills)
	})
}

// The kernel writes to a slow console between the lines of a dump.
func TestWatcher_SlowConsoleSplitsNoKill(t *testing.T) {
	bubble(t, func(n *node) {
		d := dump("/a", 7)
		n.log.print(d[:3]...)
		n.pass(4 * time.Second)
		require.Empty(n, n.told())
		n.log.print(d[3])
		n.pass(4 * time.Second)
		require.Equal(n, []int{7}, n.pids())
		require.Equal(n, "/a", n.told()[0].VictimCgroup)
		n.log.print("Tasks in /a are going to be killed due to memory.oom.group set", dump("/a", 5)[3], d[3])
		n.pass(time.Second)
		require.Equal(n, []int{7, 5}, n.pids())
		require.Equal(n, 1, n.told()[1].Kills, "kill 7 must not count again")
		n.counted.rise(n.T, "/a", 3)
		n.pass(time.Minute)
		require.Len(n, n.told(), 2)
	})
}

// Irrelevant lines do not delay the report of a kill.
func TestWatcher_BusyLogDelaysNoKill(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 7)...)
		for range 20 {
			n.log.print("nothing will come of it")
			n.pass(10 * time.Millisecond)
		}
		require.Equal(n, []int{7}, n.pids())
	})
}

// A process that was chosen and exited by itself was not killed.
func TestWatcher_ChoiceWithoutADeathIsNoKill(t *testing.T) {
	nobody := 0
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, log: newKernelLog(1000), nobody: &nobody}
		n.start(oomwatch.Position{})
		n.log.print(dump("/a", 7)[:3]...)
		n.pass(time.Second)
		require.EqualValues(t, 2, n.watcher.Position().Sequence, "a restart must read the record again")
		n.pass(time.Minute)
		require.Empty(t, n.told())
		require.Equal(t, 1, nobody)
		require.EqualValues(t, 3, n.watcher.Position().Sequence)
		n.stop()
	})
}

// Records that are read again because of an old choice are not reported again when the log is reopened.
func TestWatcher_ReopenedLogContinuesInsideADump(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(dump("/a", 6)[:3]...)
		n.log.print(dump("/a", 7)...)
		n.pass(time.Second)
		require.Equal(n, []int{7}, n.pids())
		n.log.fail(errors.New("gone"))
		n.pass(time.Second)
		n.log.fail(nil)
		n.log.print(dump("/a", 6)[3])
		n.pass(10 * time.Second)
		require.Equal(n, []int{7, 6}, n.pids())
		require.Equal(n, "/a", n.told()[1].VictimCgroup)
	})
}

// The handler may have failed because its context was done.
func TestWatcher_InterruptedHandlerIsCalledAgain(t *testing.T) {
	bubble(t, func(n *node) {
		n.setGate(make(chan struct{}))
		n.log.print(dump("/a", 7)...)
		n.pass(time.Second)
		n.stop()
		require.EqualValues(n, 2, n.watcher.Position().Sequence)
		n.setGate(nil)
		n.run()
		n.pass(time.Second)
		require.Equal(n, []int{7, 7}, n.pids())
		require.EqualValues(n, 4, n.watcher.Position().Sequence)
	})
}

func TestWatcher_FailuresOfSourcesAreReportedOneByOne(t *testing.T) {
	inside, failures := false, 0
	bubble(t, func(n *node) {
		n.pass(time.Minute)
		require.Greater(n, failures, 10)
	}, func(c *oomwatch.Config) {
		c.Sources = []oomwatch.Source{ended("a"), ended("b")}
		c.Observer.SourceFailed = func(string, error) {
			require.False(t, inside)
			inside = true
			runtime.Gosched()
			inside = false
			failures++
		}
	})
}

// ended is a source that stops at once.
type ended string

func (e ended) Name() string { return string(e) }

func (ended) Position() oomwatch.Position { return oomwatch.Position{} }

func (ended) Watch(context.Context, oomwatch.Position, func(oomwatch.Observation)) error { return nil }

// The log's clock is slower than the machine's by a hundredth of a percent.
func TestWatcher_TimesAreCorrectedForDrift(t *testing.T) {
	bubble(t, func(n *node) {
		for day := range 5 {
			n.log.booted = n.log.booted.Add(8 * time.Second)
			n.pass(24 * time.Hour)
			n.log.print("a line")
			n.pass(time.Second)
			n.log.print(dump("/a", 7)...)
			n.pass(time.Second)
			require.InDelta(n, 1, time.Since(n.told()[day].Time).Seconds(), 0.01)
		}
	})
}

func TestPosition_WaitsForTheHandler(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print("a line", "another")
		n.pass(time.Second)
		require.EqualValues(n, 2, n.watcher.Position().Sequence)
		gate := make(chan struct{})
		n.setGate(gate)
		n.log.print(dump("/a", 7)...)
		n.pass(time.Second)
		before := n.watcher.Position()
		require.EqualValues(n, 4, before.Sequence, "the position must be just before the first relevant line of the kill")
		n.stop() // during the call of the handler
		n.forget()
		n.setGate(nil)
		n.start(before)
		n.pass(time.Second)
		require.Equal(n, []int{7}, n.pids(), "the kill must be reported again")
		require.EqualValues(n, 6, n.watcher.Position().Sequence)
	})
}

func TestNext_ReturnsKillsInOrder(t *testing.T) {
	bubble(t, func(n *node) {
		n.log.print(append(dump("/a", 7), dump("/b", 8)...)...)
		first, err := n.watcher.Next(n.Context())
		require.NoError(n, err)
		second, err := n.watcher.Next(n.Context())
		require.NoError(n, err)
		require.Equal(n, []int{7, 8}, []int{first.PID, second.PID})

		ctx, cancel := context.WithTimeout(n.Context(), time.Second)
		defer cancel()
		_, err = n.watcher.Next(ctx)
		require.ErrorIs(n, err, context.DeadlineExceeded)
	}, func(c *oomwatch.Config) { c.Handler = nil })
}

func TestWatcher_AttributesKillsToPods(t *testing.T) {
	const uid, container = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11", "f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
	bubble(t, func(n *node) {
		n.log.print(dump("/kubepods/pod"+uid+"/"+container, 7)...)
		n.log.print("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/pod"+uid+",task_memcg=/elsewhere,task=exe,pid=8,uid=0", dump("/b", 8)[3])
		n.pass(time.Second)
		require.Equal(n, types.UID(uid), n.told()[0].PodUID)
		require.Equal(n, container, n.told()[0].ContainerID)
		require.Equal(n, types.UID(uid), n.told()[1].PodUID)
		require.Empty(n, n.told()[1].ContainerID)
	})
}

func TestRun_SecondRunIsRefused(t *testing.T) {
	bubble(t, func(n *node) {
		require.ErrorIs(n, n.watcher.Run(n.Context()), oomwatch.ErrRunning)
	})
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	_, err := oomwatch.New(oomwatch.Config{QueueSize: -1, Window: -1})
	for _, problem := range []string{"Sources", "QueueSize", "Window"} {
		require.ErrorContains(t, err, problem)
	}
	_, err = oomwatch.New(oomwatch.Config{Sources: []oomwatch.Source{nil}})
	require.ErrorContains(t, err, "Sources[0] is nil")
	_, err = oomwatch.NewKmsg(oomwatch.KmsgConfig{Hold: -1})
	require.ErrorContains(t, err, "Hold")
	_, err = oomwatch.NewCounters(oomwatch.CountersConfig{Mount: "here", Parent: "there", Period: -1})
	for _, problem := range []string{"Mount", "Parent", "Period"} {
		require.ErrorContains(t, err, problem)
	}
	_, err = oomwatch.NewReporter(oomwatch.ReporterConfig{Burst: -1, Every: -1})
	for _, problem := range []string{"Events", "Node", "Burst", "Every"} {
		require.ErrorContains(t, err, problem)
	}
}

func TestWatcher_ReportsEveryKillOnce(t *testing.T) {
	for seed := range 200 {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { storm(t, newRand(seed), false) })
	}
}

// The rest of a dump that was overwritten in the middle may be matched with a counter that
// another kill increased. Nevertheless no victim may be reported twice.
func TestWatcher_NamesNoVictimTwice(t *testing.T) {
	for seed := range 200 {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { storm(t, newRand(seed), true) })
	}
}
