package state_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/state"
)

// below creates files in a directory, by path. A path that ends in a slash is a directory.
func below(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path+"x")), 0o700))
		if path[len(path)-1] != '/' {
			require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
		}
	}
	return dir
}

func TestFiles_KeyIsThePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := state.Files(dir)
	require.NoError(t, store.Put(t.Context(), "image_manager/pulled/sha256-1", []byte("text")))
	require.NoError(t, store.PutUnsynced(t.Context(), "image_manager/pulled/sha256-2", []byte("more")))
	for name, want := range map[string]string{"sha256-1": "text", "sha256-2": "more"} {
		path := filepath.Join(dir, "image_manager", "pulled", name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), "other users must not be able to read the file")
	}
}

// The file of an interrupted Put is not a value, and is removed.
func TestFiles_InterruptedPut(t *testing.T) {
	t.Parallel()
	dir := below(t, map[string]string{"s/a": "old", "s/a.new": "ne", "s/b.new": "", "s/c.new": "x", "s/d.new": "y", "v/pod/file.new": "a pod's"})
	store := state.Files(dir)
	got, err := store.Get(t.Context(), "s/a")
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.NoError(t, store.Put(t.Context(), "s/b", []byte("new")))
	require.NoError(t, store.Delete(t.Context(), "s/c"))
	require.NoFileExists(t, filepath.Join(dir, "s/b.new"))
	require.NoFileExists(t, filepath.Join(dir, "s/c.new"))
	for _, prefix := range []string{"", "v/", "s/a"} {
		_, err := store.Keys(t.Context(), prefix)
		require.NoError(t, err)
	}
	keys, err := store.Keys(t.Context(), "s/")
	require.NoError(t, err)
	require.Equal(t, []string{"s/a", "s/b"}, keys)
	require.NoFileExists(t, filepath.Join(dir, "s/d.new"))
	require.FileExists(t, filepath.Join(dir, "v/pod/file.new"), "its directory is not part of the listed prefix")
}

func TestFiles_EmptyFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	dir := below(t, map[string]string{"pods/other/volumes/": ""})
	store := state.Files(dir)
	for _, key := range []string{"pods/uid/a/b", "pods/uid/c", "pods/other/c", "statuses/x"} {
		require.NoError(t, store.Put(t.Context(), key, nil))
	}
	require.NoError(t, store.Delete(t.Context(), "pods/uid/a/b"))
	require.NoDirExists(t, filepath.Join(dir, "pods/uid/a"))
	require.FileExists(t, filepath.Join(dir, "pods/uid/c"))
	for _, key := range []string{"pods/uid/c", "pods/other/c", "statuses/x"} {
		require.NoError(t, store.Delete(t.Context(), key))
	}
	require.NoDirExists(t, filepath.Join(dir, "pods/uid"))
	require.DirExists(t, filepath.Join(dir, "pods/other/volumes"), "a directory that does not belong to the store must be kept")
	require.DirExists(t, filepath.Join(dir, "statuses"))
}

// Files that are not values are neither followed, nor read, nor removed.
func TestFiles_FilesThatAreNotValues(t *testing.T) {
	t.Parallel()
	dir := below(t, map[string]string{"s/good": "1", "s/odd name": "", "s/folder/": "", "s/full/file": "", "elsewhere/secret": "mine"})
	for link, target := range map[string]string{"s/link": "../elsewhere/secret", "s/nowhere": "nowhere", "linked": "elsewhere"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	store := state.Files(dir)
	keys, err := store.Keys(t.Context(), "s/")
	require.NoError(t, err)
	require.Equal(t, []string{"s/full/file", "s/good", "s/link", "s/nowhere"}, keys)
	for _, key := range []string{"s/link", "s/nowhere", "s/folder", "s/full"} {
		_, err := store.Get(t.Context(), key)
		require.ErrorContains(t, err, "get "+key+" in "+dir+": not a regular file")
	}
	_, err = store.Get(t.Context(), "linked/secret")
	require.ErrorContains(t, err, "not a directory")
	require.ErrorContains(t, store.Put(t.Context(), "linked/secret", nil), "not a directory")
	require.ErrorContains(t, store.Delete(t.Context(), "linked/secret"), "not a directory")
	_, err = store.Keys(t.Context(), "linked/")
	require.ErrorContains(t, err, "not a directory")

	require.NoError(t, store.Delete(t.Context(), "s/folder"))
	require.NoError(t, store.Delete(t.Context(), "s/link"))
	require.NoError(t, store.Put(t.Context(), "s/nowhere", []byte("2")), "Put must replace a link")
	text, err := os.ReadFile(filepath.Join(dir, "elsewhere/secret"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
	require.Error(t, store.Put(t.Context(), "s/full", nil))
	require.NoFileExists(t, filepath.Join(dir, "s/full.new"), "a new file that cannot be renamed must be removed")
	require.FileExists(t, filepath.Join(dir, "s/odd name"))
}

// The store's directory may be a link to another disk.
func TestFiles_FolderMayBeALink(t *testing.T) {
	t.Parallel()
	dir := below(t, map[string]string{"disk/": ""})
	require.NoError(t, os.Symlink("disk", filepath.Join(dir, "root")))
	require.NoError(t, state.Files(filepath.Join(dir, "root")).Put(t.Context(), "a", nil))
	require.FileExists(t, filepath.Join(dir, "disk/a"))
}

func TestFiles_FolderIsAFile(t *testing.T) {
	t.Parallel()
	store := state.Files(filepath.Join(below(t, map[string]string{"taken": ""}), "taken"))
	_, err := store.Get(t.Context(), "a/b")
	require.ErrorContains(t, err, "state: get a/b in ")
	require.ErrorContains(t, store.Put(t.Context(), "a/b", nil), "state: put a/b in ")
	require.ErrorContains(t, store.Delete(t.Context(), "a/b"), "state: delete a/b in ")
	_, err = store.Keys(t.Context(), "a/")
	require.ErrorContains(t, err, "state: list keys of a/ in ")
}

// Other packages also remove the directory of a pod when it is empty.
func TestFiles_ConcurrentRemovalOfEmptyFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := state.Files(dir)
	for range 200 {
		var other sync.WaitGroup
		other.Go(func() {
			for range 3 {
				_ = os.Remove(filepath.Join(dir, "pods/uid"))
			}
		})
		require.NoError(t, store.PutUnsynced(t.Context(), "pods/uid/ending", []byte("1")))
		value, err := store.Get(t.Context(), "pods/uid/ending")
		require.NoError(t, err)
		require.Equal(t, "1", string(value))
		require.NoError(t, store.Delete(t.Context(), "pods/uid/ending"))
		other.Wait()
	}
}
