package oomwatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// idleLine is what a pod's start logs.
const idleLine = "6,14293,4336693009,-;cni0: port 3(veth4c9d6e21) entered forwarding state\n"

// fullDump is a kill of a container on Linux 6.18: 80 records.
func fullDump() (lines [][]byte) {
	const cgroup = "/kubepods/burstable/pod8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11/f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
	texts := dump(cgroup, 4711)
	for i := range 76 {
		texts = append(texts[:2+i], append([]string{
			fmt.Sprintf("[%7d]     0 %5d   325567    10262     8096     2166         0   180224        0             0 testserver", 14943+i, 14943+i),
		}, texts[2+i:]...)...)
	}
	for i, text := range texts {
		lines = append(lines, fmt.Appendf(nil, "6,%d,4336693009,-;%s\n", 1000+i, text))
	}
	return lines
}

func feed(parser *oomwatch.Parser, line []byte) int {
	record, err := oomwatch.ParseRecord(line)
	if err != nil {
		return 0
	}
	if _, ok := parser.Feed(record, time.Time{}); ok {
		return 1
	}
	return 0
}

// An idle line costs the kubelet's reader 75 ns.
func BenchmarkIdleLine(b *testing.B) {
	var parser oomwatch.Parser
	line := []byte(idleLine)
	b.ReportAllocs()
	for b.Loop() {
		feed(&parser, line)
	}
}

// The expression for the summary line alone costs the kubelet 44 µs, and each other
// line of a dump 250 ns.
func BenchmarkDump80Records(b *testing.B) {
	var parser oomwatch.Parser
	lines := fullDump()
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range lines {
			feed(&parser, line)
		}
		if len(parser.Flush()) != 1 {
			b.Fatal("no kill")
		}
	}
}

// Finding out whose a kill was.
func BenchmarkParseCgroup(b *testing.B) {
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dd2e6c1_40d5_4b02_9a8f_4c3f2d7f9c11.slice/" +
		"cri-containerd-f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef.scope"
	b.ReportAllocs()
	for b.Loop() {
		oomwatch.ParseCgroup(slice)
	}
}

// A look at the counters of 300 containers in 100 pods.
func BenchmarkLook300Containers(b *testing.B) {
	f := tree{new(testing.T), b.TempDir()}
	f.write("", "cgroup.controllers", "memory\n")
	for pod := range 100 {
		f.v2(fmt.Sprintf("kubepods/pod%d", pod), 0, 0)
		for container := range 3 {
			f.v2(fmt.Sprintf("kubepods/pod%d/%d", pod, container), 0, 0)
		}
	}
	c, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: f.mount, Parent: "/kubepods"})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		c.Look(func(oomwatch.Sighting) {})
	}
}

func TestAllocations(t *testing.T) {
	var parser oomwatch.Parser
	line := []byte(idleLine)
	require.Zero(t, testing.AllocsPerRun(100, func() { feed(&parser, line) }), "an idle line")
	lines := fullDump()
	require.Len(t, lines, 80)
	allocs := testing.AllocsPerRun(100, func() {
		for _, line := range lines {
			feed(&parser, line)
		}
		parser.Flush()
	})
	require.LessOrEqual(t, allocs, 5.0, "a dump")
}

// 700 dumps of 80 records: what is not told is lost, and counted, to the line.
func TestAFloodIsReadOrCounted(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { flood(t, held) })
		})
	}
}

func flood(t *testing.T, held bool) {
	t.Helper()
	const dumps, size = 700, 80
	var lost uint64
	n := &node{T: t, log: newKernelLog(13 * size)} // a ring of 128 KiB
	n.log.print("the first")
	n.start(oomwatch.Position{}, func(c *oomwatch.Config) { c.Observer.LostRecords = func(n uint64) { lost += n } })
	n.log.hold(held)
	for pid := range dumps {
		d := dump("/a", pid+1)
		n.log.print(d[:2]...)
		for range size - len(d) {
			n.log.print("[  14943]     0 14943   325567    10262     8096     2166         0   180224        0             0 testserver")
		}
		n.log.print(d[2:]...)
		if !held {
			synctest.Wait()
		}
	}
	n.log.hold(false)
	n.pass(time.Minute)
	n.stop()
	told := uint64(len(n.told()))
	t.Logf("%d of %d kills told, %d of %d records lost", told, dumps, lost, dumps*size)
	if held {
		require.EqualValues(t, 13, told)
		require.EqualValues(t, (dumps-13)*size, lost)
		return
	}
	require.EqualValues(t, dumps, told)
	require.Zero(t, lost)
}
