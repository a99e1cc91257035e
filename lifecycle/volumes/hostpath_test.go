package volumes_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/folder", 0o700))
	require.NoError(t, os.WriteFile(dir+"/file", []byte("x"), 0o600))
	require.NoError(t, os.Symlink("folder", dir+"/link"))
	require.NoError(t, os.Symlink(dir+"/made-by-the-agent", dir+"/dangling"))
	listener, err := net.Listen("unix", dir+"/socket")
	require.NoError(t, err)
	defer listener.Close()
	const failed = "hostPath type check failed: "
	for _, tc := range []struct {
		name string
		kind corev1.HostPathType
		path string
		err  string
	}{
		{"anything goes without a type", "", dir + "/nothing", ""},
		{"a folder", corev1.HostPathDirectory, dir + "/folder", ""},
		{"a link to a folder", corev1.HostPathDirectory, dir + "/link", ""},
		{"a file is no folder", corev1.HostPathDirectory, dir + "/file", failed + dir + "/file is not a directory"},
		{"nothing is no folder", corev1.HostPathDirectory, dir + "/none", failed + dir + "/none is not a directory"},
		{"a folder to make", corev1.HostPathDirectoryOrCreate, dir + "/new/deep", ""},
		{"a folder that is there", corev1.HostPathDirectoryOrCreate, dir + "/folder", ""},
		{"a file in its place", corev1.HostPathDirectoryOrCreate, dir + "/file", failed + dir + "/file is not a directory"},
		{"a file on the way", corev1.HostPathDirectoryOrCreate, dir + "/file/x", failed + dir + "/file/x is not a directory"},
		{"a file", corev1.HostPathFile, dir + "/file", ""},
		{"a folder is no file", corev1.HostPathFile, dir + "/folder", failed + dir + "/folder is not a file"},
		{"a file to make", corev1.HostPathFileOrCreate, dir + "/newfile", ""},
		{"a file that is there", corev1.HostPathFileOrCreate, dir + "/file", ""},
		{"a folder in its place", corev1.HostPathFileOrCreate, dir + "/folder", failed + dir + "/folder is not a file"},
		{"a link to nothing in its place", corev1.HostPathFileOrCreate, dir + "/dangling", failed + dir + "/dangling is not a file"},
		{"its folder is not made", corev1.HostPathFileOrCreate, dir + "/none/file", "open " + dir + "/none/file: no such file or directory"},
		{"a socket", corev1.HostPathSocket, dir + "/socket", ""},
		{"a file is no socket", corev1.HostPathSocket, dir + "/file", failed + dir + "/file is not a socket file"},
		{"a character device", corev1.HostPathCharDev, "/dev/null", ""},
		{"a file is no character device", corev1.HostPathCharDev, dir + "/file", failed + dir + "/file is not a character device"},
		{"a character device is no block device", corev1.HostPathBlockDev, "/dev/null", failed + "/dev/null is not a block device"},
		{"an invalid type", "Pipe", dir + "/file", "Pipe is an invalid volume type"},
		{"a path with ..", "", dir + "/a/../../b", "hostPath: " + dir + "/a/../../b must not contain '..'"},
		{"dots in a name are fine", "", dir + "/a..b", ""},
		{"a path from nowhere", corev1.HostPathDirectoryOrCreate, "from-nowhere", "hostPath: from-nowhere is not an absolute path"},
		{"no path", "", "", "hostPath: the path is empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, nil)
			source := &corev1.HostPathVolumeSource{Path: tc.path}
			if tc.kind != "" {
				source.Type = &tc.kind
			}
			paths, err := n.Mount(t.Context(), podOf(vol("h", corev1.VolumeSource{HostPath: source})))
			if tc.err != "" {
				require.EqualError(t, err, `MountVolume.SetUp failed for volume "h" : `+tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{"h": tc.path}, paths)
		})
	}
	data, err := os.ReadFile(dir + "/file")
	require.NoError(t, err)
	require.Equal(t, "x", string(data), "the existing file must be kept")
	info, err := os.Stat(filepath.Join(dir, "new/deep"))
	require.NoError(t, err)
	require.True(t, info.IsDir())
	require.FileExists(t, dir+"/newfile")
	require.NoFileExists(t, dir+"/made-by-the-agent")
	require.NoDirExists(t, "from-nowhere")
}
