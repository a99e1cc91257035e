package logrotate

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	a := classify("0.log", []string{
		"0.log", "1.log", "10.log.20260102-030405", "0.log.old", "0.log.20260102-030405", "0.log.20260102-030406.gz",
		"0.log.20260102-030404", "0.log.20260102-030404.gz", "0.log.20260102-030407.tmp", "0.log.20260102-030407.gz.tmp",
		"0.log.notes.tmp", "0.log.20260199-030405", "0.log.gz",
		"0.log.20260102-030409.5", "0.log.20260102-030409,123.gz",
		"0.log.99991231-235959", "20260102-030405", "20260102-030405.gz",
	})
	require.Equal(t, []string{"0.log.20260102-030406.gz", "0.log.20260102-030405", "0.log.20260102-030404.gz"}, a.rotated)
	slices.Sort(a.leftovers)
	require.Equal(t, []string{"0.log.20260102-030404", "0.log.20260102-030407.gz.tmp", "0.log.20260102-030407.tmp"}, a.leftovers)
}

func TestRotatedName_SortsAfterAllOthers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 999, time.UTC)
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	for _, c := range []struct{ name, newest, want string }{
		{"no rotated file", "", "0.log.20260102-030405"},
		{"an older file", "0.log.20260102-030404.gz", "0.log.20260102-030405"},
		{"the same second", "0.log.20260102-030405", "0.log.20260102-030406"},
		{"the clock was set back", "0.log.20260103-000000.gz", "0.log.20260103-000001"},
		{"an unreadable name", "0.log.yesterday", "0.log.20260102-030405"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a siblings
			if c.newest != "" {
				a.rotated = []string{c.newest}
			}
			require.Equal(t, c.want, rotatedName("0.log", now, a))
		})
	}
	t.Run("the hour that comes twice in autumn", func(t *testing.T) {
		second := time.Date(2026, 11, 1, 6, 10, 0, 0, time.UTC).In(newYork)
		require.Equal(t, "01:10:00 EST", second.Format("15:04:05 MST"))
		a := siblings{rotated: []string{"0.log.20261101-013000"}} // from the first 01:30 of the day on which the clock is set back, 40 minutes earlier
		require.Equal(t, "0.log.20261101-013001", rotatedName("0.log", second, a))
	})
}

// FuzzClassify checks that no file is both complete and left over, and that a left-over file
// is temporary or has a complete compressed file.
func FuzzClassify(f *testing.F) {
	f.Add("0.log", "0.log 0.log.20260102-030405 0.log.20260102-030405.gz 0.log.20260102-030405.tmp")
	f.Add("", ". .. .gz .tmp")
	f.Add("a", "a.99991231-235959.gz a.99981231-235959")
	f.Fuzz(func(t *testing.T, log, text string) {
		names := strings.Fields(text)
		a := classify(log, names)
		for _, name := range a.leftovers {
			require.NotContains(t, a.rotated, name)
			require.True(t, strings.HasSuffix(name, temporary) || slices.Contains(names, name+compressed), name)
		}
		for _, name := range append(a.rotated, a.leftovers...) {
			require.NotEqual(t, log, name)
		}
		next := rotatedName(log, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), a)
		for _, name := range a.rotated {
			stamp := strings.TrimSuffix(strings.TrimPrefix(name, log+"."), compressed)
			require.Greater(t, strings.TrimPrefix(next, log+"."), stamp)
		}
	})
}
