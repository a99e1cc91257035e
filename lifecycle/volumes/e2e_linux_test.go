//go:build e2e

package volumes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// real returns a node with real mounts. Mounts of a failed test are unmounted.
func real(t *testing.T) *node {
	t.Helper()
	require.Zero(t, os.Getuid(), "these tests mount file systems: run them as root")
	n := newNode(t, func(c *volumes.Config) { c.Mounter = volumes.NewMounter() })
	t.Cleanup(func() {
		mounts, err := volumes.NewMounter().Mounts()
		require.NoError(t, err)
		for _, m := range slices.Backward(mounts) {
			if strings.HasPrefix(m.Target, n.root+"/") {
				require.NoError(t, unix.Unmount(m.Target, unix.MNT_DETACH))
			}
		}
	})
	return n
}

func TestE2ETmpfs(t *testing.T) {
	n := real(t)
	limit := resource.MustParse("1Mi")
	group := int64(4242)
	p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		vol("m", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}}))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	var paths map[string]string
	for range 2 {
		var err error
		paths, err = n.Mount(t.Context(), p)
		require.NoError(t, err)
	}
	for _, path := range paths {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(path, &fs))
		require.EqualValues(t, unix.TMPFS_MAGIC, fs.Type, path)
	}
	require.Equal(t, map[string]string{"user": "-rw-r--r-- me", "pass": "-rw-r--r-- word"}, in(t, paths["s"]))
	require.ErrorIs(t, os.WriteFile(paths["m"]+"/big", make([]byte, 2<<20), 0o600), unix.ENOSPC)
	info, err := os.Stat(paths["m"])
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSetgid|os.ModeSticky|0o777, info.Mode())

	require.NoError(t, os.WriteFile(paths["m"]+"/held", nil, 0o600))
	held, err := os.Open(paths["m"] + "/held")
	require.NoError(t, err)
	require.ErrorIs(t, n.Unmount(t.Context(), p.UID), unix.EBUSY)
	require.FileExists(t, paths["m"]+"/held")
	require.NoError(t, held.Close())
	require.NoError(t, n.Unmount(t.Context(), p.UID))
	require.NoDirExists(t, n.root+"/pods/uid-1")
}

// A bind mount of the host's data in a pod's directory: the mount must be removed, and the
// data kept.
func TestE2EBindMount(t *testing.T) {
	n := real(t)
	host := t.TempDir()
	require.NoError(t, os.MkdirAll(host+"/deep", 0o700))
	require.NoError(t, os.WriteFile(host+"/deep/keep", []byte("x"), 0o600))
	paths, err := n.Mount(t.Context(), podOf(vol("e", emptyDir())))
	require.NoError(t, err)
	target := filepath.Join(paths["e"], "a b\n\\c")
	require.NoError(t, os.Mkdir(target, 0o700))
	for range 2 {
		require.NoError(t, unix.Mount(host, target, "", unix.MS_BIND, ""))
	}
	require.NoError(t, unix.Mount("tmpfs", host+"/deep", "tmpfs", 0, ""), "a later mount below the source must not appear below the target")
	require.NoError(t, unix.Unmount(host+"/deep", 0))

	// A mount that cannot be removed protects all data.
	held, err := os.Open(target + "/deep/keep")
	require.NoError(t, err)
	require.ErrorIs(t, n.Unmount(t.Context(), "uid-1"), unix.EBUSY)
	require.NoError(t, held.Close())
	require.FileExists(t, host+"/deep/keep")

	require.NoError(t, n.Unmount(t.Context(), "uid-1"))
	require.FileExists(t, host+"/deep/keep")
	require.NoDirExists(t, n.root+"/pods/uid-1")
}

func TestE2EMounter_MissingPathsAndLinks(t *testing.T) {
	m := volumes.NewMounter()
	require.ErrorIs(t, m.Tmpfs(t.TempDir()+"/none", 0), unix.ENOENT)
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/proc", dir+"/link"))
	require.NoError(t, m.Unmount(dir+"/link"), "unmounting a path without a mount must succeed")
	require.FileExists(t, "/proc/self/stat", "links must not be followed")
}

func TestE2EUnmount_OfWhatIsNotMounted(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, volumes.NewMounter().Unmount(dir))
	require.NoError(t, volumes.NewMounter().Unmount(dir+"/missing"))
}
