package volumes_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// nest creates nested directories whose path is longer than the kernel's limit.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range depth {
		require.NoError(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		fd = next
	}
	require.NoError(t, unix.Close(fd))
}

// TestUnmount_OfDeepFolders creates 3,000 nested directories, twice, with an agent that can
// open only a hundred more files. It is not parallel, because that limit applies to the whole
// process.
func TestUnmount_OfDeepFolders(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("e", emptyDir()), vol("other", emptyDir()))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	for _, dir := range []string{"/a", "/b", "/.removing-1"} {
		require.NoError(t, os.Mkdir(paths["e"]+dir, 0o755))
	}
	nest(t, paths["e"]+"/a", 3000)
	nest(t, paths["e"]+"/b", 3000)
	require.NoError(t, os.WriteFile(paths["e"]+"/.removing-1/file", nil, 0o600))
	require.NoError(t, os.WriteFile(paths["e"]+"/.removing-2", nil, 0o600))
	require.NoError(t, os.Symlink(n.root, paths["other"]+"/link"))
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)

	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(descriptors) + 100), Max: before.Max}))
	err = n.Unmount(t.Context(), p.UID)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, err)
	require.NoDirExists(t, n.root+"/pods/uid-1")
	require.DirExists(t, n.root+"/pods")
}

// TestUnmount_OfWhateverAContainerMakes creates different kinds of files in a volume, and a
// directory next to the volume, which must be kept.
func TestUnmount_OfWhateverAContainerMakes(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(t *testing.T, dir, outside string){
		"more_files_than_are_read_at_a_time": func(t *testing.T, dir, _ string) {
			t.Helper()
			for i := range 2500 {
				require.NoError(t, os.WriteFile(fmt.Sprint(dir, "/", i), nil, 0o600))
			}
		},
		"more_folders_than_are_read_at_a_time": func(t *testing.T, dir, _ string) {
			t.Helper()
			for i := range 1100 {
				require.NoError(t, os.MkdirAll(fmt.Sprint(dir, "/", i, "/x/y"), 0o700))
			}
		},
		"links": func(t *testing.T, dir, outside string) {
			t.Helper()
			require.NoError(t, os.Symlink(outside, dir+"/away"))
			require.NoError(t, os.Symlink(".", dir+"/loop"))
			require.NoError(t, os.Link(outside+"/keep", dir+"/hard"))
		},
		"pipes_and_names": func(t *testing.T, dir, _ string) {
			t.Helper()
			require.NoError(t, unix.Mkfifo(dir+"/pipe", 0o600))
			require.NoError(t, os.Mkdir(dir+"/\xff\n", 0o700))
			require.NoError(t, os.WriteFile(dir+"/\xff\n/ ", nil, 0o600))
		},
		"just_as_deep_as_is_removed_in_place": func(t *testing.T, dir, _ string) {
			t.Helper()
			for depth := range 5 {
				require.NoError(t, os.Mkdir(fmt.Sprint(dir, "/", depth), 0o700))
				nest(t, fmt.Sprint(dir, "/", depth), 58+depth)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, outside := newNode(t, nil), t.TempDir()
			require.NoError(t, os.WriteFile(outside+"/keep", nil, 0o600))
			p := podOf(vol("e", emptyDir()))
			paths, err := n.Mount(t.Context(), p)
			require.NoError(t, err)
			fill(t, paths["e"], outside)
			require.NoError(t, n.Unmount(t.Context(), p.UID))
			require.NoDirExists(t, n.root+"/pods/uid-1")
			require.FileExists(t, outside+"/keep")
		})
	}
}

// TestUnmount_BesideAnotherCleaner removes the same volume concurrently: missing files must
// not be an error.
func TestUnmount_BesideAnotherCleaner(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil)
	for range 10 {
		paths, err := n.Mount(t.Context(), podOf(vol("e", emptyDir())))
		require.NoError(t, err)
		for i := range 50 {
			dir := fmt.Sprintf("%s/%d/deep", paths["e"], i)
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
		}
		var all sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			other := newNode(t, func(c *volumes.Config) { c.Root = n.root })
			all.Go(func() { errs[i] = other.Unmount(t.Context(), "uid-1") })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoDirExists(t, n.root+"/pods/uid-1")
	}
}
