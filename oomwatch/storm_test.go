package oomwatch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

func newRand(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 0)) }

// storm simulates a random history: kills in several cgroups, a log that fails or is
// overwritten, counters that are read early and late, and restarts of the watcher. If torn is
// set, dumps are overwritten in the middle.
func storm(t *testing.T, r *rand.Rand, torn bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, log: newKernelLog(5 + r.IntN(100))}
		if !torn {
			n.log.whole = len(dump("", 0))
		}
		n.start(oomwatch.Position{})
		kills, counted, pid := map[string]int{}, map[string]int{}, 0
		look := func() {
			for _, cgroup := range []string{"/p/a", "/p/b", "/p/c"} {
				if rise := kills[cgroup] - counted[cgroup]; rise > 0 {
					counted[cgroup] = kills[cgroup]
					n.counted.rise(t, cgroup, rise)
				}
			}
		}
		for range 30 {
			switch r.IntN(8) {
			case 0, 1, 2:
				for range 1 + r.IntN(10) {
					cgroup := fmt.Sprintf("/p/%c", 'a'+rune(r.IntN(3)))
					pid++
					kills[cgroup]++
					n.log.print(dump(cgroup, pid)...)
				}
			case 3, 4:
				look()
			case 5:
				n.pass(time.Duration(r.IntN(2000)) * time.Millisecond)
			case 6:
				n.log.fail(errors.New("broken"))
				n.pass(time.Duration(r.IntN(500)) * time.Millisecond)
				n.log.fail(nil)
			case 7:
				n.pass(10 * time.Second)
				look()
				n.pass(10 * time.Second) // nothing is open: a restart loses nothing
				n.stop()
				n.start(n.watcher.Position())
			}
		}
		n.pass(10 * time.Second)
		look()
		n.pass(10 * time.Second)
		n.stop()

		told, named := 0, []int(nil)
		for _, k := range n.told() {
			told += k.Kills
			if k.PID != 0 {
				named = append(named, k.PID)
			}
		}
		if !torn {
			require.Equal(t, pid, told, "number of reported kills")
		}
		slices.Sort(named)
		require.Equal(t, slices.Compact(slices.Clone(named)), named, "a kill was reported twice")
	})
}
