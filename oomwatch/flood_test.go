package oomwatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// 700 dumps of 80 records: every record that is not reported is counted as lost.
func TestKmsg_FloodIsReadOrCounted(t *testing.T) {
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
	t.Logf("%d of %d kills reported, %d of %d records lost", told, dumps, lost, dumps*size)
	if held {
		require.EqualValues(t, 13, told)
		require.EqualValues(t, (dumps-13)*size, lost)
		return
	}
	require.EqualValues(t, dumps, told)
	require.Zero(t, lost)
}
