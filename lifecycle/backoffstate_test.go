package lifecycle_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
)

func TestBackoff_ContinuesAfterAnAgentRestart(t *testing.T) {
	t.Parallel()
	before, clk := newBackoff(t, lifecycle.BackoffConfig{})
	for range 3 {
		before.Next("crashes", clk.Now()) // 40s from the next end on
	}
	ended := clk.Now().Add(time.Second)
	clk.Step(5 * time.Second)
	_, delay, waiting := before.Until("crashes", ended)
	require.True(t, waiting)
	require.Equal(t, 40*time.Second, delay)
	written, err := json.Marshal(before.Snapshot())
	require.NoError(t, err)

	var states []lifecycle.BackoffState
	require.NoError(t, json.Unmarshal(written, &states))
	clk.Step(10 * time.Second) // no agent is running
	after, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: clk})
	require.NoError(t, err)
	after.Restore(states)
	until, delay, waiting := after.Until("crashes", ended)
	require.True(t, waiting)
	require.Equal(t, 40*time.Second, delay)
	require.Equal(t, ended.Add(40*time.Second), until, "the wait must count from the end of the container, not from the start of the agent")
	require.Equal(t, 80*time.Second, after.Next("crashes", ended))
}

func TestSnapshot_Contents(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	require.Empty(t, b.Snapshot())
	b.Next("quiet", clk.Now())
	clk.Step(15 * time.Minute)
	b.Next("b", clk.Now())
	b.Next("a", clk.Now().Add(-time.Minute))
	now := clk.Now()
	require.Equal(t, []lifecycle.BackoffState{
		{Key: "a", Delay: 10 * time.Second, Started: now, Ended: now.Add(-time.Minute)},
		{Key: "b", Delay: 10 * time.Second, Started: now, Ended: now},
	}, b.Snapshot())

	real, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	real.Next("k", epoch())
	state := real.Snapshot()[0]
	require.Equal(t, state.Started.Round(0), state.Started, "saved times must have no monotonic reading")
}

func TestRestore_States(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	b.Next("known", clk.Now())
	now := clk.Now()
	dayEast := time.FixedZone("", 24*60*60) // JSON decoding accepts this zone, encoding does not
	b.Restore([]lifecycle.BackoffState{
		{Key: "known", Delay: time.Minute, Started: now, Ended: now},
		{Key: "odd", Delay: 0, Started: now, Ended: now},
		{Key: "odd", Delay: -time.Second, Started: now, Ended: now},
		{Key: "long", Delay: 300 * time.Hour, Started: now, Ended: now},
		{Key: "future", Delay: time.Minute, Started: now.Add(time.Hour), Ended: now.Add(time.Hour)},
		{Key: "east", Delay: time.Minute, Started: now, Ended: now.In(dayEast)},
		{Key: "before the year 0", Delay: time.Minute, Started: now, Ended: time.Date(0, 1, 1, 0, 0, 0, 0, dayEast)},
		{Key: "after the year 9999", Delay: time.Minute, Started: now, Ended: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Key: "zero", Delay: time.Minute},
		{Key: "twice", Delay: time.Second, Started: now, Ended: now},
		{Key: "twice", Delay: time.Minute, Started: now, Ended: now},
	})
	for key, want := range map[string]time.Duration{
		"known": 10 * time.Second, "odd": 0, "long": 5 * time.Minute, "future": time.Minute, "twice": time.Second, "east": time.Minute,
		"before the year 0": 0, "after the year 9999": 0,
	} {
		require.Equal(t, want, b.Delay(key), key)
	}
	until, _, waiting := b.Until("future", now.Add(time.Hour))
	require.True(t, waiting)
	require.Equal(t, now.Add(time.Minute), until, "a time in the future must count as now")
	_, _, waiting = b.Until("zero", time.Time{})
	require.False(t, waiting)
	var keys []string
	for _, s := range b.Snapshot() {
		keys = append(keys, s.Key)
	}
	require.Equal(t, []string{"east", "future", "known", "long", "twice"}, keys)
	_, err := json.Marshal(b.Snapshot())
	require.NoError(t, err)
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`[{"key":"a","delay":10000000000,"started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[{"key":"a","delay":-1},{"key":"a","delay":9223372036854775807,"ended":"9999-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[{"key":"a","delay":1,"started":"2026-01-01T00:00:00Z","ended":"2026-01-02T00:00:00+24:00"}]`))
	f.Add([]byte(`[{"key":"a","delay":1,"started":"2026-01-01T00:00:00Z","ended":"0000-01-01T00:00:00+01:00"}]`))
	f.Add([]byte(`[{"key":"a","delay":1,"ended":"9999-12-31T23:59:59-01:00"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var states []lifecycle.BackoffState
		if json.Unmarshal(data, &states) != nil {
			return
		}
		clk := testingclock.NewFakeClock(epoch())
		b, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: clk})
		require.NoError(t, err)
		b.Restore(states)
		_, err = json.Marshal(b.Snapshot())
		require.NoError(t, err)
		for _, s := range states {
			until, delay, waiting := b.Until(s.Key, s.Ended)
			require.LessOrEqual(t, delay, lifecycle.DefaultMaxBackoff)
			require.False(t, waiting && until.After(epoch().Add(lifecycle.DefaultMaxBackoff)), "%v must not wait until %v", s, until)
			next := b.Next(s.Key, s.Ended)
			require.True(t, next > 0 && next <= lifecycle.DefaultMaxBackoff, "%v", next)
		}
	})
}
