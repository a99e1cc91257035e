package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// TestWalk_OfDeepFolders walks over 5,000 nested directories, while the process can open only
// five more files. It is not parallel, because that limit applies to the whole process.
func TestWalk_OfDeepFolders(t *testing.T) {
	const depth = 5000
	cfg := live(t, "v2-systemd")
	data := volume(cfg, burstable, "data")
	write(t, "x", data, "file")
	nest(t, data, depth)
	p := newProvider(t, cfg)
	_, _ = p.Node(t.Context())
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)

	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(descriptors) + 5), Max: before.Max}))
	r, err := p.Refresh(t.Context())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, err)
	require.Zero(t, r.Waiting)
	require.Less(t, r.Entries, 5*depth, "the cost of a directory must not depend on its depth")
	require.EqualValues(t, depth+2, podsOf(t, p)[burstable].Volumes[0].Inodes.Value)
}

// TestWalk_OfFoldersThatAreMoved moves a directory at each moment of a walk. Directories that
// are not moved must be counted, and nothing outside. A moved directory may count twice, as
// with du.
func TestWalk_OfFoldersThatAreMoved(t *testing.T) {
	t.Parallel()
	for looks := range 25 {
		for to, most := range map[string]int64{"inside": 10, "outside": 7} {
			t.Run(fmt.Sprintf("%s/looks=%d", to, looks), func(t *testing.T) {
				t.Parallel()
				cfg := live(t, "v2-systemd")
				cfg.WalkEntries = 1
				data := volume(cfg, burstable, "data")
				write(t, "x", data, "a", "b", "c", "file")
				write(t, "x", data, "b", "file")
				elsewhere := filepath.Join(data, "b", "moved")
				if to == "outside" {
					write(t, "x", cfg.NodePath, "other", "folder", "file")
					elsewhere = filepath.Join(cfg.NodePath, "other", "moved")
				}
				p := newProvider(t, cfg)
				for range looks {
					_, err := p.Refresh(t.Context())
					require.NoError(t, err)
				}
				require.NoError(t, os.Rename(filepath.Join(data, "a", "b"), elsewhere))
				found := measured(t, p)[burstable].Volumes[0].Inodes.Value
				require.GreaterOrEqual(t, found, int64(4), "at least the directory itself, a, b and its file")
				require.LessOrEqual(t, found, most)
			})
		}
	}
}
