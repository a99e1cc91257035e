package logrotate

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// exchanging is a filesystem that calls a function after each check of a file. A container
// that can write to its log directory may change a file at this moment.
type exchanging struct {
	files
	exchange func(name string)
}

func (e exchanging) lstat(name string) (fs.FileInfo, error) {
	info, err := e.files.lstat(name)
	e.exchange(name)
	return info, err
}

// A pipe must not block the rotation of all logs.
func TestRotate_FolderBecomesAPipe(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.write(10)
	r := w.rotator(testingclock.NewFakeClock(time.Unix(0, 0)), func(f files) files {
		return exchanging{f, func(string) {
			dir := filepath.Dir(w.path)
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, syscall.Mkfifo(dir, 0o600))
		}}
	})
	_, err := r.Rotate(t.Context())
	require.ErrorIs(t, err, syscall.ENOTDIR)
}

// If the directory is a link to another pod's log directory, none of that pod's logs may be
// renamed.
func TestRotate_LinkToAnotherPodsLogs(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.write(10)
	other := filepath.Join(w.root(), "ns_other_uid2/app")
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(other, logName), make([]byte, 100), 0o600))
	require.NoError(t, os.RemoveAll(filepath.Dir(w.path)))
	require.NoError(t, os.Symlink("../ns_other_uid2/app", filepath.Dir(w.path)))
	_, err := w.rotator(testingclock.NewFakeClock(time.Unix(1e9, 0)), nil).Rotate(t.Context())
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.Zero(t, w.calls)
	entries, err := os.ReadDir(other)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
