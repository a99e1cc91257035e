//go:build unix && !race

package wirelist_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// This test is only for builds without the race detector, because with the race
// detector the pools of gRPC do not reuse memory. It is not parallel, because
// allocations of other goroutines count as well.
func TestLister_IdleRelistAllocatesLittle(t *testing.T) {
	const pods = 500
	g := newGenerator(t, pods)
	allocs := testing.AllocsPerRun(50, func() {
		_, err := g.Relist(t.Context())
		require.NoError(t, err)
	})
	require.Less(t, allocs, float64(pods), "an unchanged pod must not be decoded")
}
