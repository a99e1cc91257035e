package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	testingclock "k8s.io/utils/clock/testing"
)

// withoutDescriptors calls f while this process cannot open any file. Tests that use it must
// not be parallel.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
	f()
}

// TestRefresh_WithoutFileDescriptorsKeepsFigures makes open fail for a while, after a number
// of operations on a pod. Figures must keep their values and times, and the next refresh must
// measure them.
func TestRefresh_WithoutFileDescriptorsKeepsFigures(t *testing.T) {
	for looks := range 7 {
		t.Run(fmt.Sprintf("looks=%d", looks), func(t *testing.T) {
			cfg := live(t, "v2-systemd")
			clock := testingclock.NewFakeClock(epoch())
			cfg.Clock = clock
			cfg.WalkEntries = 1
			data := volume(cfg, burstable, "data")
			write(t, "x", data, "folder", "file")
			write(t, "x", data, "more", "file")
			p := newProvider(t, cfg)
			before := measured(t, p)[burstable].Volumes
			require.EqualValues(t, 5, before[0].Inodes.Value)

			write(t, "x", data, "more", "files")
			clock.Step(time.Minute)
			for range looks {
				_, err := p.Refresh(t.Context())
				require.NoError(t, err)
			}
			withoutDescriptors(t, func() {
				var err error
				for i := 0; err == nil || !strings.Contains(err.Error(), filepath.Dir(data)); i++ {
					require.Less(t, i, 20)
					_, err = p.Refresh(t.Context())
				}
				require.ErrorIs(t, err, unix.EMFILE)
			})
			require.Equal(t, before, podsOf(t, p)[burstable].Volumes)

			again := measured(t, p)[burstable].Volumes
			require.EqualValues(t, 6, again[0].Inodes.Value, "the next refresh must measure again")
			require.Equal(t, clock.Now(), again[0].Inodes.Time)
			require.NoError(t, os.RemoveAll(data))
			clock.Step(time.Minute)
			require.Empty(t, measured(t, p)[burstable].Volumes, "a removed volume must have no figure")
		})
	}
}

// If some directories of a pod cannot be measured, its other figures are measured.
func TestRefresh_MissedFoldersDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	data, own := volume(cfg, burstable, "data"), logs(cfg, "a", burstable, "app")
	write(t, "x", data, "1")
	write(t, "x", own, "0.log")
	p := newProvider(t, cfg)
	before := measured(t, p)[burstable]

	plugin := filepath.Dir(data)
	require.NoError(t, os.Rename(plugin, plugin+"-away"))
	write(t, "a file where a folder should be", plugin)
	write(t, "x", own, "1.log")
	clock.Step(time.Minute)
	_, err := p.Refresh(t.Context())
	require.ErrorContains(t, err, plugin)
	now := podsOf(t, p)[burstable]
	require.Equal(t, before.Volumes, now.Volumes)
	require.EqualValues(t, 3, now.Containers[0].Logs.Inodes.Value)
	require.Equal(t, clock.Now(), now.Containers[0].Logs.Inodes.Time)
}
