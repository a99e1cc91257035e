package safeopen_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed returns a root with a folder that has a file of each type.
func bed(t *testing.T) (root *os.Root, dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "a/b/link")))
	require.NoError(t, os.Symlink("b", filepath.Join(dir, "a/folder-link")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, "a/b/device-link")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "a/b/loop")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "a/b/pipe"), 0o600))
	root, err := safeopen.Root(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root, dir
}

func TestFile_OnlyRegularFilesBelowTheRoot(t *testing.T) {
	t.Parallel()
	root, _ := bed(t)
	f, err := safeopen.File(root, "a/b/file")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "text", string(text))
	for path, want := range map[string]error{
		"a/b/link": safeopen.ErrNotRegular, "a/b/device-link": safeopen.ErrNotRegular, "a/b/loop": safeopen.ErrNotRegular,
		"a/b/pipe": safeopen.ErrNotRegular, "a/b": safeopen.ErrNotRegular, ".": safeopen.ErrNotRegular,
		"a/folder-link/file": syscall.ENOTDIR, "a/b/file/x": syscall.ENOTDIR, "a/b/pipe/x": syscall.ENOTDIR,
		"missing": fs.ErrNotExist, "missing/file": fs.ErrNotExist,
	} {
		_, err := safeopen.File(root, path)
		require.ErrorIs(t, err, want, path)
	}
	for _, path := range []string{"../x/file", "/etc/passwd", ""} {
		_, err := safeopen.File(root, path)
		require.Error(t, err, path)
	}
}

func TestReadDir_OnlyFoldersBelowTheRoot(t *testing.T) {
	t.Parallel()
	root, _ := bed(t)
	entries, err := safeopen.ReadDir(root, "a")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "b", entries[0].Name())
	names, err := safeopen.ReadNames(root, "a")
	require.NoError(t, err)
	require.Equal(t, []string{entries[0].Name(), entries[1].Name()}, names)
	for _, path := range []string{"a/folder-link", "a/b/pipe", "a/b/file", "a/b/link"} {
		_, err := safeopen.ReadDir(root, path)
		require.ErrorIs(t, err, syscall.ENOTDIR, path)
		_, err = safeopen.ReadNames(root, path)
		require.ErrorIs(t, err, syscall.ENOTDIR, path)
	}
	_, err = safeopen.ReadDir(root, "a/c")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRoot_NoPipeIsOpened(t *testing.T) {
	t.Parallel()
	_, dir := bed(t)
	_, err := safeopen.Root(filepath.Join(dir, "a/b/pipe"))
	require.ErrorIs(t, err, syscall.ENOTDIR)
	root, err := safeopen.Root(filepath.Join(dir, "a/folder-link"))
	require.NoError(t, err)
	require.NoError(t, root.Close())
}

func TestPlace_FollowsLinksWithinTheRoot(t *testing.T) {
	t.Parallel()
	root, dir := bed(t)
	require.NoError(t, os.Symlink("../../b/file", filepath.Join(dir, "a/b/up-too-far")))
	for path, want := range map[string]string{
		"a/b/link": "a/b/file", "a/folder-link/link": "a/b/file", "a/folder-link": "a/b", "a/folder-link/": "a/b", ".": ".", "a/b/pipe": "a/b/pipe",
	} {
		f, err := safeopen.Place(root, path)
		require.NoError(t, err, path)
		got, err := f.Stat()
		require.NoError(t, err)
		require.NoError(t, f.Close())
		expected, err := os.Stat(filepath.Join(dir, want))
		require.NoError(t, err)
		require.True(t, os.SameFile(expected, got), path)
	}
	for _, path := range []string{"a/b/device-link", "a/b/loop", "a/b/up-too-far", "missing", "a/b/link/"} {
		_, err := safeopen.Place(root, path)
		require.Error(t, err, path)
	}
}

// If a file is replaced while it is opened, only regular files are opened, and the open
// does not block.
func TestFile_ReplacedDuringTheOpen(t *testing.T) {
	t.Parallel()
	root, dir := bed(t)
	const rounds = 2000
	stop := make(chan struct{})
	var wg sync.WaitGroup
	exchange := func(spot string, kinds ...func(path string)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				beside := filepath.Join(dir, spot+".new")
				_ = os.RemoveAll(filepath.Join(dir, spot))
				kinds[i%len(kinds)](beside)
				_ = os.Rename(beside, filepath.Join(dir, spot))
			}
		})
	}
	pipe := func(path string) { _ = syscall.Mkfifo(path, 0o600) }
	exchange("a/b/spot", pipe,
		func(path string) { _ = os.WriteFile(path, nil, 0o600) },
		func(path string) { _ = os.Symlink("/dev/zero", path) })
	exchange("a/spot", pipe,
		func(path string) { _ = os.Mkdir(path, 0o700) },
		func(path string) { _ = os.Symlink("b", path) })
	for range rounds {
		f, err := safeopen.File(root, "a/b/spot")
		if err == nil {
			info, err := f.Stat()
			require.NoError(t, err)
			require.True(t, info.Mode().IsRegular())
			require.NoError(t, f.Close())
		}
		entries, err := safeopen.ReadDir(root, "a/spot")
		if err == nil {
			require.Empty(t, entries, "the target of the link must not be opened")
		}
	}
	close(stop)
	wg.Wait()
}

// While a folder is removed and created again repeatedly, Folder either opens the folder or
// reports that the folder does not exist.
func TestFolder_CreatedAgainDuringTheOpen(t *testing.T) {
	t.Parallel()
	root, _ := bed(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = root.Mkdir("a/spot", 0o700)
				_ = root.Remove("a/spot")
			}
		})
	}
	for range 5000 {
		if _, err := safeopen.ReadDir(root, "a/spot"); err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	}
	close(stop)
	wg.Wait()
}
