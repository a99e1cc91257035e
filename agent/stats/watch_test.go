package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/eviction"
)

func TestPressureTrigger_UnprivilegedKeepsTheRatio(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for from, to := range map[pressureTrigger]pressureTrigger{
		{150 * ms, 1000 * ms}:  {300 * ms, 2000 * ms},
		{100 * ms, 2000 * ms}:  {100 * ms, 2000 * ms},
		{70 * ms, 500 * ms}:    {280 * ms, 2000 * ms},
		{300 * ms, 3000 * ms}:  {400 * ms, 4000 * ms},
		{900 * ms, 9000 * ms}:  {1000 * ms, 10000 * ms},
		{500 * ms, 10000 * ms}: {500 * ms, 10000 * ms},
	} {
		require.Equal(t, to, from.unprivileged(), "%v", from)
	}
}

func TestUsageLevel(t *testing.T) {
	t.Parallel()
	// The kubelet sets the level capacity - threshold + (usage - working set). Here
	// 600 of 1000 bytes are used, 100 of them can be reclaimed, and the threshold
	// is 200.
	const capacity, used, inactive, threshold = 1000, 600, 100, 200
	available := known(capacity).minus(known(used - inactive))
	require.Equal(t, known(capacity-threshold+inactive), usageLevel(known(used), available, threshold))
	require.Equal(t, value{}, usageLevel(known(used), known(200), 200), "the usage has already reached the level")
	require.Equal(t, value{}, usageLevel(known(used), known(100), 200), "the usage is above the level")
	require.Equal(t, value{}, usageLevel(known(used), value{}, 200))
	require.Equal(t, value{}, usageLevel(value{}, known(500), 200))
	require.Equal(t, known(used+500), usageLevel(known(used), known(500), -1), "an invalid threshold")
}

func TestFirstThreshold(t *testing.T) {
	t.Parallel()
	levels := []eviction.Level{
		{Signal: eviction.MemoryAvailable, Available: 100},
		{Signal: eviction.NodeFSAvailable, Available: 900},
		{Signal: eviction.MemoryAvailable, Available: 300},
		{Signal: eviction.MemoryAvailable, Available: 200},
	}
	threshold, ok := first(levels, eviction.MemoryAvailable)
	require.True(t, ok)
	require.EqualValues(t, 300, threshold)
	_, ok = first(levels, eviction.PIDAvailable)
	require.False(t, ok)
}
