//go:build unix && !race

package wirelist_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector has gRPC's pools forget, so this is for builds without it. Other
// goroutines' allocations count as well: not parallel.
func TestLister_IdleRelistAllocatesLittle(t *testing.T) {
	const pods = 500
	g := newGenerator(t, pods)
	allocs := testing.AllocsPerRun(50, func() { _, _ = g.Relist(t.Context()) })
	require.Less(t, allocs, float64(pods), "an unchanged pod is decoded")
}
