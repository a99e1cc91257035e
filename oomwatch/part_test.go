package oomwatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// parse returns the kills in a log whose records have these flags and texts.
func parse(t *testing.T, records ...string) (kills []oomwatch.Kill) {
	t.Helper()
	var p oomwatch.Parser
	for i, text := range records {
		flags := "-"
		if text[0] == '+' {
			flags, text = "c", text[1:]
		}
		r, err := oomwatch.ParseRecord(fmt.Appendf(nil, "4,%d,%d,%s;%s\n", i+1, i, flags, text))
		require.NoError(t, err)
		if k, ok := p.Feed(r, time.Time{}); ok {
			kills = append(kills, k)
		}
	}
	return append(kills, p.Flush()...)
}

func TestParser_KillWithoutADumpAfterAGroup(t *testing.T) {
	const summary = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=exe,pid=7,uid=0"
	kills := parse(t, summary, "Memory cgroup out of memory: Killed process 7 (exe) total-vm:1kB",
		"Tasks in /a/b are going to be killed due to memory.oom.group set",
		"Memory cgroup out of memory: Killed process 8 (exe) total-vm:1kB",
		"Out of memory: Killed process 9 (other) total-vm:1kB")
	require.Len(t, kills, 2)
	require.Equal(t, 2, kills[0].Kills)
	require.Equal(t, oomwatch.System, kills[1].Kind)
	require.Equal(t, 9, kills[1].PID)
}

func TestParser_CgroupWithAFieldInItsName(t *testing.T) {
	const head = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a"
	for _, test := range []struct{ summary, process, victim string }{
		{head + ",task_memcg=/a/x,task=y,task=exe,pid=7,uid=0", "exe", "/a/x,task=y"},
		{head + ",task_memcg=/a/x,task=y,task=exe,pid=7,uid=0", "y,task=exe", "/a/x"},
		{head + "/x,task=y,task_memcg=/a/x,task=y/z,task=exe,pid=7,uid=0", "exe", "/a/x,task=y/z"},
	} {
		kills := parse(t, test.summary, "Memory cgroup out of memory: Killed process 7 ("+test.process+") total-vm:1kB")
		require.Len(t, kills, 1)
		require.Equal(t, test.victim, kills[0].VictimCgroup)
	}
}

// resumed returns what is reported before and after a restart at the position that was
// saved some time after the given number of records.
func resumed(t *testing.T, before, after []string) (first, second []oomwatch.Kill) {
	t.Helper()
	bubble(t, func(n *node) {
		n.log.print(before...)
		n.pass(50 * time.Millisecond)
		first = n.told()
		n.stop()
		position := n.watcher.Position()
		n.start(position)
		n.log.print(after...)
		n.pass(time.Minute)
		second = n.told()[len(first):]
		require.Empty(n, n.watcher.Position().HandledUpTo)
	})
	return first, second
}

func TestWatcher_RestartReportsNothingTwiceWithAnOpenChoice(t *testing.T) {
	one, two, three := dump("/a", 7), dump("/b", 8), dump("/c", 9)
	first, second := resumed(t, []string{one[0], one[2], two[0], two[2], two[3], three[0]}, []string{three[2], one[3], three[3]})
	require.Len(t, first, 1)
	require.Equal(t, 8, first[0].PID)
	require.Len(t, second, 2)
	require.Equal(t, []int{7, 9}, []int{second[0].PID, second[1].PID})
	require.Equal(t, "/a", second[0].VictimCgroup)

	// No part of the kill of 8 may be reported again either if 8 was chosen before 7.
	first, second = resumed(t, []string{two[0], two[2], one[0], one[2], two[3], three[0]}, []string{three[2], one[3], three[3]})
	require.Len(t, first, 1)
	require.Len(t, second, 2)
	require.Equal(t, []int{7, 9}, []int{second[0].PID, second[1].PID})
}

func TestWatcher_RestartBetweenTwoLinesLosesNothing(t *testing.T) {
	one := dump("/a", 7)
	_, kills := resumed(t, one[:3], one[3:])
	require.Len(t, kills, 1)
	require.Equal(t, "/a", kills[0].VictimCgroup)
}

// ownLog is a source that can be resumed. It has read ten records, of which the fifth is
// about a kill.
type ownLog struct{}

func (ownLog) Name() string                { return "own" }
func (ownLog) Position() oomwatch.Position { return oomwatch.Position{BootID: "boot", Sequence: 10} }

func (ownLog) Watch(ctx context.Context, _ oomwatch.Position, emit func(oomwatch.Observation)) error {
	emit(oomwatch.Observation{Kill: oomwatch.Kill{Kills: 1, VictimCgroup: "/a", Sequence: 5}})
	<-ctx.Done()
	return nil
}

func TestPosition_OfACustomSourceWaitsForItsKills(t *testing.T) {
	bubble(t, func(n *node) {
		require.EqualValues(n, 4, n.watcher.Position().Sequence)
		_, err := n.watcher.Next(n.Context())
		require.NoError(n, err)
		require.EqualValues(n, 10, n.watcher.Position().Sequence)
	}, func(c *oomwatch.Config) { c.Sources, c.Handler = []oomwatch.Source{ownLog{}}, nil })
}
