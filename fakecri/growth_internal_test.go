package fakecri

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGrowth(t *testing.T) {
	t.Parallel()
	const huge = math.MaxUint64
	for name, tc := range map[string]struct {
		g    Growth
		age  time.Duration
		want uint64
	}{
		"nothing":                   {Growth{}, time.Hour, 0},
		"from the start":            {Growth{Start: 5}, 0, 5},
		"more every second":         {Growth{Start: 5, PerSecond: 10}, 1500 * time.Millisecond, 20},
		"not before it is there":    {Growth{PerSecond: 1}, time.Second - 1, 0},
		"up to a maximum":           {Growth{Start: 5, PerSecond: 10, Max: 12}, time.Hour, 12},
		"no overflow of the rate":   {Growth{PerSecond: huge}, time.Hour, huge},
		"no overflow of the sum":    {Growth{Start: huge, PerSecond: 1}, time.Second, huge},
		"a clock that stepped back": {Growth{Start: 5, PerSecond: 10}, -time.Hour, 5},
	} {
		require.Equal(t, tc.want, tc.g.at(tc.age), name)
	}
}

func TestGrowthExceeds(t *testing.T) {
	t.Parallel()
	const huge = math.MaxUint64
	for name, tc := range map[string]struct {
		g     Growth
		limit uint64
		want  time.Duration
		ok    bool
	}{
		"at once":                     {Growth{Start: 11}, 10, 0, true},
		"as much as allowed":          {Growth{Start: 10}, 10, 0, false},
		"after a while":               {Growth{Start: 5, PerSecond: 2}, 10, 3 * time.Second, true},
		"rounded up":                  {Growth{PerSecond: 3}, 0, 333333334, true},
		"a maximum within the limit":  {Growth{PerSecond: 3, Max: 10}, 10, 0, false},
		"a maximum beyond the limit":  {Growth{PerSecond: 1, Max: 11}, 10, 11 * time.Second, true},
		"a limit that nothing passes": {Growth{PerSecond: huge}, huge, 0, false},
		"in more time than there is":  {Growth{PerSecond: 1}, huge - 1, 0, false},
		"in just too much time":       {Growth{PerSecond: 1}, math.MaxInt64 / 1_000_000_000, 0, false},
	} {
		got, ok := tc.g.exceeds(tc.limit)
		require.Equal(t, tc.ok, ok, name)
		require.Equal(t, tc.want, got, name)
	}
}

// FuzzGrowth checks that exceeds returns the first time at which the usage
// exceeds the limit.
func FuzzGrowth(f *testing.F) {
	f.Add(uint64(5), uint64(3), uint64(0), uint64(10))
	f.Add(uint64(0), uint64(1), uint64(1<<62), uint64(1<<40))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(0), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, start, perSecond, most, limit uint64) {
		g := Growth{Start: start, PerSecond: perSecond, Max: most}
		if g.Validate() != nil {
			return
		}
		after, ok := g.exceeds(limit)
		if !ok {
			require.LessOrEqual(t, g.at(math.MaxInt64-1), limit)
			return
		}
		require.Greater(t, g.at(after), limit)
		if after > 0 {
			require.LessOrEqual(t, g.at(after-1), limit)
		}
	})
}
