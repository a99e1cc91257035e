package filelock_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/filelock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := filelock.Lock(file)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		_, err = filelock.Lock(file)
		require.ErrorContains(t, err, "another agent uses this folder")
	}
	require.NoError(t, unlock())
	unlock, err = filelock.Lock(file)
	require.NoError(t, err)
	require.NoError(t, unlock())
}

func TestLock_FolderThatDoesNotExist(t *testing.T) {
	_, err := filelock.Lock(filepath.Join(t.TempDir(), "missing", "lock"))
	require.ErrorContains(t, err, "no such file or directory")
}
