//go:build e2e && linux

package logrotate

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// TestE2EFullTmpfs rotates on a completely full disk. Logs must still be rotated, the number
// of files must stay within the limit, and the removal of the oldest file must free space for
// compression.
func TestE2EFullTmpfs(t *testing.T) {
	require.Zero(t, os.Geteuid(), "this test mounts a tmpfs: run it as root")
	root := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=256k,nr_inodes=32"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })

	w := &writer{t: t, path: filepath.Join(root, folder, logName)}
	require.NoError(t, os.MkdirAll(filepath.Dir(w.path), 0o755))
	w.reopen()
	defer func() { require.NoError(t, w.file.Close()) }()
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r, err := New(Config{Runtime: w, PodLogs: root, Policy: Policy{MaxSizeBytes: 16 << 10, MaxFiles: 4}, Clock: clock})
	require.NoError(t, err)
	rotate := func() Result {
		w.write(2000)
		clock.Step(time.Hour)
		res, err := r.Rotate(t.Context())
		t.Logf("rotated %d logs: %v", res.Rotated, err)
		return res
	}
	for range 2 {
		require.Equal(t, 1, rotate().Rotated)
	}
	w.write(2000) // content for the next rotation
	fill := filepath.Join(root, "fill")
	for size := 1 << 20; size > 0; size /= 2 { // fills the disk completely
		f, err := os.OpenFile(fill, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		require.NoError(t, err)
		_, _ = f.WriteString(strings.Repeat("x", size))
		require.NoError(t, f.Close())
	}
	require.ErrorIs(t, os.WriteFile(filepath.Join(root, "more"), []byte("x"), 0o600), syscall.ENOSPC)
	require.NoError(t, os.Remove(filepath.Join(root, "more")))

	clock.Step(time.Hour)
	res, err := r.Rotate(t.Context())
	require.ErrorIs(t, err, syscall.ENOSPC, "compression must fail on the full disk")
	require.Equal(t, 1, res.Rotated)
	names, err := filepath.Glob(w.path + "*")
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), 4)
	w.requireAll()

	require.NoError(t, os.Remove(fill))
	for range 6 {
		require.Equal(t, 1, rotate().Rotated)
	}
	names, err = filepath.Glob(w.path + "*")
	require.NoError(t, err)
	require.Len(t, names, 4)
	kept := w.lines()
	for i, n := range kept {
		require.Equal(t, w.next-len(kept)+i, n, "the kept lines must be the last ones, without a gap")
	}
}
