//go:build linux

package podrunner_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// binder replaces the kernel's mounts: it records the opened file and the
// target of each mount.
type binder struct {
	mu    sync.Mutex
	inode map[string]uint64
	err   error
}

func (b *binder) bind(from *os.File, onto string) error {
	if b.err != nil {
		return b.err
	}
	info, err := from.Stat()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inode[onto] = info.Sys().(*syscall.Stat_t).Ino
	return nil
}

func (b *binder) unbind(path string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inode, path)
	return nil
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

// volumeBed returns a pod's volume, and a directory outside of it.
func volumeBed(t *testing.T) (s podrunner.SubPaths, b *binder, volume, outside string) {
	t.Helper()
	root := t.TempDir()
	s, err := podrunner.SubPathsOf(filepath.Join(root, "pods"), "uid")
	require.NoError(t, err)
	b = &binder{inode: map[string]uint64{}}
	volume, outside = filepath.Join(root, "volume"), filepath.Join(root, "outside")
	require.NoError(t, os.MkdirAll(filepath.Join(volume, "dir/deep"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(volume, "file"), []byte("x"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(outside, "deep"), 0o700))
	return podrunner.WithBinder(s, b.bind, b.unbind), b, volume, outside
}

func TestSubPaths(t *testing.T) {
	t.Parallel()
	s, b, volume, _ := volumeBed(t)
	require.NoError(t, os.Symlink("dir/deep", filepath.Join(volume, "link")))
	require.NoError(t, os.Symlink("file", filepath.Join(volume, "filelink")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(volume, "pipe"), 0o600))
	for i, c := range []struct{ sub, want string }{
		{"dir/deep", "dir/deep"},
		{"file", "file"},
		{"link", "dir/deep"},
		{"filelink", "file"},
		{"pipe", "pipe"},
		{"dir/../file", "file"},
		{".", "."},
		{"new/folder", "new/folder"},
	} {
		got, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: i, Volume: "v", HostPath: volume, SubPath: c.sub})
		require.NoError(t, err, c.sub)
		require.Equal(t, filepath.Join(s.PodDir, "volume-subpaths/v/app", string(rune('0'+i))), got)
		require.Equal(t, inode(t, filepath.Join(volume, c.want)), b.inode[got], c.sub)
		info, err := os.Stat(got)
		require.NoError(t, err)
		want, err := os.Stat(filepath.Join(volume, c.want))
		require.NoError(t, err)
		require.Equal(t, want.IsDir(), info.IsDir(), "%s: the mount point must be of the same type as the source", c.sub)
	}
	info, err := os.Stat(filepath.Join(volume, "new/folder"))
	require.NoError(t, err)
	require.True(t, info.IsDir())

	again, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: 0, Volume: "v", HostPath: volume, SubPath: "file"})
	require.NoError(t, err)
	require.Equal(t, inode(t, filepath.Join(volume, "file")), b.inode[again], "the mount of an earlier instance must be replaced")

	require.NoError(t, s.Clean())
	require.Empty(t, b.inode)
	require.NoDirExists(t, filepath.Join(s.PodDir, "volume-subpaths"))
	require.FileExists(t, filepath.Join(volume, "file"))
	require.NoError(t, s.Clean(), "again")
}

// Containers that don't run as root can write to a subPath as to the volume,
// independent of the umask of the agent.
func TestSubPaths_NewFoldersHaveTheModeOfTheVolume(t *testing.T) {
	t.Parallel()
	s, _, volume, _ := volumeBed(t)
	mode := fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o777
	require.NoError(t, os.Chmod(volume, mode))
	require.NoError(t, os.Chmod(filepath.Join(volume, "dir"), 0o711))
	for i, sub := range []string{"a", "b/c/d", "dir/new"} {
		_, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: i, Volume: "v", HostPath: volume, SubPath: sub})
		require.NoError(t, err, sub)
	}
	for path, want := range map[string]fs.FileMode{
		"a": mode, "b": mode, "b/c": mode, "b/c/d": mode, "dir/new": mode, "dir": fs.ModeDir | 0o711,
	} {
		info, err := os.Stat(filepath.Join(volume, path))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode(), path)
	}
}

func TestSubPaths_LeadOutOfTheVolume(t *testing.T) {
	t.Parallel()
	s, b, volume, outside := volumeBed(t)
	require.NoError(t, os.Symlink(outside, filepath.Join(volume, "absolute")))
	require.NoError(t, os.Symlink("../outside", filepath.Join(volume, "up")))
	require.NoError(t, os.Symlink("loop", filepath.Join(volume, "loop")))
	for _, sub := range []string{"absolute", "up", "absolute/deep", "up/deep", "up/new", "../outside", "/etc", "loop", "file/x"} {
		_, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: sub})
		require.Error(t, err, sub)
	}
	require.Empty(t, b.inode)
	require.NoDirExists(t, filepath.Join(outside, "new"))
	for _, m := range []podrunner.SubPathMount{
		{Container: "..", Volume: "v"}, {Container: "a/b", Volume: "v"}, {Container: "app", Volume: "../v"}, {Container: "app", Volume: "v"},
	} {
		_, err := s.Prepare(m)
		require.Error(t, err)
	}
	_, err := podrunner.SubPathsOf("/pods", "../x")
	require.Error(t, err)
}

// A container that shares the volume replaces a directory with a link during the creation of
// another container (CVE-2021-25741). The mount must be in the volume, or must fail.
func TestSubPaths_Race(t *testing.T) {
	t.Parallel()
	s, b, volume, outside := volumeBed(t)
	spot, real, link := filepath.Join(volume, "spot"), filepath.Join(volume, "real"), filepath.Join(volume, "link")
	inside, err := os.OpenRoot(volume)
	require.NoError(t, err)
	defer func() { require.NoError(t, inside.Close()) }()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = os.Mkdir(real, 0o777), os.Mkdir(filepath.Join(real, "deep"), 0o777)
			_ = os.Symlink(outside, link)
			for _, what := range []string{real, link} {
				if os.Rename(what, spot) == nil {
					_ = os.Rename(spot, what)
				}
			}
		}
	})
	forbidden := []uint64{inode(t, outside), inode(t, filepath.Join(outside, "deep"))}
	bound := 0
	for i := range 500 {
		sub := []string{"spot", "spot/deep"}[i%2]
		got, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: sub})
		if err == nil {
			bound++
			require.NotContains(t, forbidden, b.inode[got])
		}
		_, _ = inside.Remove("spot/deep"), inside.Remove("spot") // created while the link did not exist
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of 500 mounts succeeded", bound)
	require.Positive(t, bound)
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing outside of the volume must be created or removed")
}

func TestSubPaths_BindFails(t *testing.T) {
	t.Parallel()
	s, b, volume, _ := volumeBed(t)
	b.err = errors.New("not permitted")
	_, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: "file"})
	require.ErrorIs(t, err, b.err)
	require.NoFileExists(t, filepath.Join(s.PodDir, "volume-subpaths/v/app/0"), "the mount point must be removed")

	stuck := errors.New("busy")
	held := podrunner.WithBinder(s, b.bind, func(string) error { return stuck })
	b.err = nil
	_, err = held.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: "dir"})
	require.NoError(t, err)
	_, err = held.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: "dir"})
	require.ErrorIs(t, err, stuck)
	require.ErrorIs(t, held.Clean(), stuck)
	require.DirExists(t, filepath.Join(s.PodDir, "volume-subpaths/v/app/0"), "a path that may be a mount point must be kept")
}

// Files that were written to a mount point while nothing was mounted there must
// not be removed.
func TestSubPaths_CleanRemovesDirectoriesOnly(t *testing.T) {
	t.Parallel()
	s, _, volume, _ := volumeBed(t)
	got, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: "dir"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(got, "data"), []byte("x"), 0o600))
	err = s.Clean()
	require.Error(t, err)
	require.ErrorContains(t, err, "not empty")
	require.FileExists(t, filepath.Join(got, "data"))
}

// TestSubPaths_ConcurrentCleanups checks that paths which another cleanup has removed are not
// an error.
func TestSubPaths_ConcurrentCleanups(t *testing.T) {
	t.Parallel()
	s, b, volume, _ := volumeBed(t)
	got, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: "dir"})
	require.NoError(t, err)
	first := podrunner.WithBinder(s, b.bind, func(path string) error { return errors.Join(b.unbind(path), os.Remove(path)) })
	require.NoError(t, first.Clean())
	require.NoDirExists(t, got)

	for range 20 {
		for i := range 50 {
			path := filepath.Join(s.PodDir, "volume-subpaths/v", "c"+string(rune('A'+i)), "0")
			require.NoError(t, os.MkdirAll(path, 0o750))
		}
		var all sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			all.Go(func() { errs[i] = s.Clean() })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoDirExists(t, filepath.Join(s.PodDir, "volume-subpaths"))
	}
}
