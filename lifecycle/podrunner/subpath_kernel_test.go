//go:build linux && e2e

package podrunner_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// TestE2ESubPaths makes real bind mounts. It needs root.
func TestE2ESubPaths(t *testing.T) {
	require.Zero(t, os.Geteuid(), "this test mounts: run it as root")
	root := t.TempDir()
	s, err := podrunner.SubPathsOf(filepath.Join(root, "pods"), "uid")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Clean()) })
	volume := filepath.Join(root, "volume")
	require.NoError(t, os.MkdirAll(filepath.Join(volume, "dir"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(volume, "dir/file"), []byte("one"), 0o600))
	folder, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: 0, Volume: "v", HostPath: volume, SubPath: "dir"})
	require.NoError(t, err)
	file, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: 1, Volume: "v", HostPath: volume, SubPath: "dir/file"})
	require.NoError(t, err)

	// The volume's owner replaces the directory. The mounts still show the
	// directory that was opened.
	require.NoError(t, os.Rename(filepath.Join(volume, "dir"), filepath.Join(volume, "old")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(volume, "dir")))
	for _, path := range []string{filepath.Join(folder, "file"), file} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "one", string(text))
	}
	_, err = s.Prepare(podrunner.SubPathMount{Container: "app", Index: 0, Volume: "v", HostPath: volume, SubPath: "dir"})
	require.Error(t, err)
	require.NoError(t, s.Clean())
	require.FileExists(t, filepath.Join(volume, "old/file"))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), root)
}
