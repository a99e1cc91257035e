package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite_ReplacesTheFile(t *testing.T) {
	t.Parallel()
	for _, survives := range []atomicfile.Durability{atomicfile.Process, atomicfile.Durable} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path+atomicfile.Suffix, []byte("a longer text, of which a crash left this"), 0o600))
		for _, text := range []string{"the first", "next", ""} {
			require.NoError(t, atomicfile.Write(path, []byte(text), survives))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, text, string(data))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			require.Equal(t, []string{"file"}, names(t, filepath.Dir(path)))
		}
	}
}

// A reader that opened the old file reads the complete old text.
func TestWrite_ChangesNoOpenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, atomicfile.Write(path, []byte("old"), atomicfile.Process))
	old, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Close()) }()
	require.NoError(t, atomicfile.Write(path, []byte("new"), atomicfile.Process))
	text := make([]byte, 9)
	n, err := old.Read(text)
	require.NoError(t, err)
	require.Equal(t, "old", string(text[:n]))
}

func TestWrite_FailureLeavesOnlyTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.ErrorIs(t, atomicfile.Write(filepath.Join(dir, "missing", "file"), nil, atomicfile.Durable), os.ErrNotExist)

	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.MkdirAll(filepath.Join(taken, "x"), 0o700))
	require.Error(t, atomicfile.Write(taken, []byte("text"), atomicfile.Durable), "the target is a directory")
	require.Equal(t, []string{"taken"}, names(t, dir))
}
