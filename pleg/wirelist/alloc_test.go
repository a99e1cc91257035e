//go:build unix && !race

package wirelist_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector has gRPC's pools forget, so this is for builds without it. Other
// goroutines' allocations count as well: not parallel.
func TestAnIdleRelistOverASocketAllocatesLittle(t *testing.T) {
	g := newGenerator(t, 500)
	allocs := testing.AllocsPerRun(50, func() { _, _ = g.Relist(t.Context()) })
	require.LessOrEqual(t, allocs, 200.0)
}
