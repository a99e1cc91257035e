package podrunner_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// A container that replaces a file with a pipe must not block the agent.
func TestTerminationMessage_PipesAreNotOpened(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	require.NoError(t, syscall.Mkfifo(w.log, 0o600))
	require.Equal(t, "Error on reading termination message from logs: not a regular file", podrunner.TerminationMessage(w.status))
	require.NoError(t, syscall.Mkfifo(w.message, 0o600))
	require.Equal(t, "Error on reading termination log "+w.message+": not a regular file", podrunner.TerminationMessage(w.status))
}

func TestSyncPod_PipeInThePlaceOfALogFolder(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	require.NoError(t, os.MkdirAll(filepath.Join(s.logs, "ns_pod_uid"), 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(s.logs, "ns_pod_uid/app"), 0o600))
	require.Error(t, s.sync(pod), "the log directory cannot be created")
	require.NoError(t, os.Remove(filepath.Join(s.logs, "ns_pod_uid/app")))
	pod.UID = "other"
	require.NoError(t, s.sync(pod))
}

// A container can write to its hosts file without limit. The agent reads only as many bytes
// as it would write, plus one.
func TestSyncPod_HugeHostsFileIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	require.NoError(t, s.sync(pod))
	hosts := filepath.Join(s.root, "pods/uid/etc-hosts")
	before, err := os.ReadFile(hosts)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(hosts, 1<<40))
	s.lose(pod.UID)
	require.NoError(t, s.sync(pod))
	after, err := os.Stat(hosts)
	require.NoError(t, err)
	require.Equal(t, int64(len(before)), after.Size())
}

// The Runner resolves a link in a volume without opening its target: a socket cannot be
// opened, and opening a pipe would wake up its writer.
func TestSubPaths_LinkIsResolvedWithoutAnOpen(t *testing.T) {
	s, b, volume, _ := volumeBed(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(volume, "pipe"), 0o600))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(socket)) }()
	t.Chdir(volume) // the path of a socket must be short
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrUnix{Name: "socket"}))
	for link, target := range map[string]string{"one": "pipe", "two": "one", "dir/three": "../two", "four": "dir/three", "five": "socket"} {
		require.NoError(t, os.Symlink(target, filepath.Join(volume, link)))
	}
	read := false
	s = podrunner.WithBinder(s, func(from *os.File, onto string) error {
		fd, err := syscall.Open(filepath.Join(volume, "pipe"), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		if read = err == nil; read {
			_ = syscall.Close(fd)
		}
		return b.bind(from, onto)
	}, b.unbind)
	for i, c := range []struct{ sub, want string }{{"one", "pipe"}, {"two", "pipe"}, {"dir/three", "pipe"}, {"four", "pipe"}, {"five", "socket"}} {
		got, err := s.Prepare(podrunner.SubPathMount{Container: "app", Index: i, Volume: "v", HostPath: volume, SubPath: c.sub})
		require.NoError(t, err, c.sub)
		require.Equal(t, inode(t, filepath.Join(volume, c.want)), b.inode[got], c.sub)
		require.False(t, read, "%s: the pipe was opened for reading", c.sub)
	}
}

// A volume that was replaced with a pipe or a device is not opened.
func TestSubPaths_VolumeIsNoFolder(t *testing.T) {
	t.Parallel()
	s, _, volume, _ := volumeBed(t)
	pipe := filepath.Join(volume, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, sub := range []string{".", "x"} {
		_, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: pipe, SubPath: sub})
		require.ErrorIs(t, err, syscall.ENOTDIR)
	}
	_, err := s.Prepare(podrunner.SubPathMount{Container: "app", Volume: "v", HostPath: volume, SubPath: strings.Repeat("pipe/", 2)})
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
