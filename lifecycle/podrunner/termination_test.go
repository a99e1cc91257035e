package podrunner_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestTerminationMessageShare(t *testing.T) {
	t.Parallel()
	for containers, want := range map[int]int{-1: 4096, 0: 4096, 1: 4096, 3: 4096, 4: 3072, 24: 512} {
		require.Equal(t, want, podrunner.TerminationMessageShare(containers), containers)
	}
}

func TestTerminationLog(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path, err := podrunner.MakeTerminationLog(root, "uid", "app", 3)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "uid/containers/app/3"), path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "any user in the container must be able to write")
	require.NoError(t, os.WriteFile(path, []byte("bye"), 0o600))

	_, err = podrunner.MakeTerminationLog(root, "uid", "app", 3)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, text, "a file that was created again must be empty")

	for _, name := range []string{"..", "a/b", ""} {
		_, err := podrunner.MakeTerminationLog(root, "uid", name, 0)
		require.ErrorContains(t, err, "is not the name of a directory", name)
	}
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "evil")))
	_, err = podrunner.MakeTerminationLog(root, "evil", "app", 0)
	require.Error(t, err)
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left, "no link out of the root must be followed")
}

// A container that can write to its pod's directory can replace the files that the Runner
// creates next with links.
func TestMakeTerminationLog_Links(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	other, err := podrunner.MakeTerminationLog(root, "other", "app", 0)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, []byte("bye"), 0o600))
	mine := filepath.Join(root, "uid/containers")
	require.NoError(t, os.MkdirAll(filepath.Join(mine, "link"), 0o755))
	require.NoError(t, os.Symlink("../../other/containers/app", filepath.Join(mine, "app")))
	_, err = podrunner.MakeTerminationLog(root, "uid", "app", 0)
	require.ErrorContains(t, err, "not a directory", "a link to another pod's directory must be rejected")

	require.NoError(t, os.Symlink("../../../other/containers/app/0", filepath.Join(mine, "link/0")))
	path, err := podrunner.MakeTerminationLog(root, "uid", "link", 0)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "bye", string(text), "the other pod's message must be kept")
}

// words is a terminated container with its files on the node.
type words struct {
	message, log string // paths
	status       *runtimeapi.ContainerStatus
}

func newWords(t *testing.T) words {
	t.Helper()
	root := t.TempDir()
	w := words{message: filepath.Join(root, "pods/uid/containers/app/0"), log: filepath.Join(root, "logs/ns_pod_uid/app/0.log")}
	require.NoError(t, os.MkdirAll(filepath.Dir(w.message), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Dir(w.log), 0o755))
	w.status = &runtimeapi.ContainerStatus{
		State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 1, StartedAt: 1, FinishedAt: 2, LogPath: w.log,
		Labels: map[string]string{
			"io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": "pod",
			"io.kubernetes.pod.uid": "uid", "io.kubernetes.container.name": "app",
		},
		Annotations: map[string]string{
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "FallbackToLogsOnError",
		},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: w.message}},
	}
	return w
}

func TestTerminationMessage_MessageAndLog(t *testing.T) {
	t.Parallel()
	const none = "\x00"
	long := strings.Repeat("a", 100) + strings.Repeat("b", 4095) + "\xff"
	for name, c := range map[string]struct {
		message, log string
		change       func(words)
		want         func(words) string
	}{
		"the message in the file":                        {message: "words", log: "it broke", want: func(words) string { return "words" }},
		"an empty file, without the fallback to the log": {log: "it broke", change: func(w words) { clear(w.status.Annotations) }},
		"an empty file, so the log":                      {log: "it broke", want: func(words) string { return "it broke\n" }},
		"an empty file, but exit code 0":                 {log: "it broke", change: func(w words) { w.status.ExitCode = 0 }},
		"no file":                                        {message: none, log: "it broke", want: func(words) string { return "it broke\n" }},
		"no mount of the file":                           {message: "words", log: "it broke", change: func(w words) { w.status.Mounts = nil }, want: func(words) string { return "it broke\n" }},
		"no log": {log: none, want: func(w words) string {
			return "Error on reading termination message from logs: " +
				"failed to try resolving symlinks in path \"" + w.log + "\": lstat " + w.log + ": no such file or directory"
		}},
		"no log is known":        {log: "it broke", change: func(w words) { w.status.LogPath = "" }},
		"more than there may be": {message: long, want: func(words) string { return strings.Repeat("b", 4095) }},
		"a folder": {message: none, change: func(w words) { _ = os.Mkdir(w.message, 0o700) }, want: func(w words) string {
			return "Error on reading termination log " + w.message + ": not a regular file"
		}},
		"a folder for a log": {log: none, change: func(w words) { _ = os.Mkdir(w.log, 0o700) }, want: func(words) string {
			return "Error on reading termination message from logs: not a regular file"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWords(t)
			if c.message != none {
				require.NoError(t, os.WriteFile(w.message, []byte(c.message), 0o600))
			}
			if c.log != none {
				require.NoError(t, os.WriteFile(w.log, []byte("2026-01-02T03:04:05.000000006Z stderr F "+c.log+"\n"), 0o600))
			}
			if c.change != nil {
				c.change(w)
			}
			want := ""
			if c.want != nil {
				want = c.want(w)
			}
			require.Equal(t, want, podrunner.TerminationMessage(w.status))
		})
	}
}

// A container that can write to its log directory, or to the directory of its message file,
// must not be able to read files of the node with the agent's permissions.
func TestTerminationMessage_NoLinkIsFollowed(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(w words, secret string) error{
		"a link for the log":     func(w words, secret string) error { return os.Symlink(secret, w.log) },
		"a link for the message": func(w words, secret string) error { return os.Symlink(secret, w.message) },
		"a link for the folder of the logs": func(w words, secret string) error {
			return errors.Join(os.Remove(filepath.Dir(w.log)), os.Symlink(filepath.Dir(secret), filepath.Dir(w.log)))
		},
		"a link to another pod's logs": func(w words, secret string) error {
			other := filepath.Join(filepath.Dir(w.log), "../../ns_other_uid2/app")
			return errors.Join(os.MkdirAll(other, 0o755), os.Link(secret, filepath.Join(other, "0.log")),
				os.Remove(filepath.Dir(w.log)), os.Symlink("../ns_other_uid2/app", filepath.Dir(w.log)))
		},
		"a log of another pod": func(w words, secret string) error {
			w.status.LogPath = secret
			return nil
		},
		"a volume in the place of the message file": func(w words, secret string) error {
			w.status.Mounts[0].HostPath = secret
			return nil
		},
		"no labels": func(w words, secret string) error {
			w.status.Labels, w.status.LogPath, w.status.Mounts[0].HostPath = nil, secret, secret
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWords(t)
			secret := filepath.Join(t.TempDir(), "0.log")
			require.NoError(t, os.WriteFile(secret, []byte("2026-01-02T03:04:05.000000006Z stderr F secret\n"), 0o600))
			require.NoError(t, plant(w, secret))
			require.NotContains(t, podrunner.TerminationMessage(w.status), "secret\n")
		})
	}
}

func logTail(t *testing.T, text string) string {
	t.Helper()
	got, err := podrunner.LogTail(strings.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	return got
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	const stamp = "2026-01-02T03:04:05.000000006Z "
	require.Empty(t, logTail(t, ""))
	require.Equal(t, "a\n\nb c\n", logTail(t, stamp+"stdout F a\n"+stamp+"stderr F \n"+stamp+"stdout F b c\n"))
	require.Equal(t, "ab\n", logTail(t, stamp+"stdout P a\n"+stamp+"stdout F b\n"), "a line in two parts must be joined")
	require.Equal(t, "ab", logTail(t, stamp+"stdout F:x a\n"+stamp+"stdout P b")[0:1]+"b", "an incomplete last line must be included")
	require.Equal(t, "a\n", logTail(t, "nonsense\n"+stamp+"stdout F a\n\n"), "malformed lines must be skipped")

	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "%sstdout F line %d\n", stamp, i)
	}
	lines := strings.Split(strings.TrimSuffix(logTail(t, many.String()), "\n"), "\n")
	require.Len(t, lines, 80)
	require.Equal(t, "line 120", lines[0])

	require.Len(t, logTail(t, stamp+"stdout F "+strings.Repeat("x", 5000)+"\n"), 2048)
	huge := strings.Repeat(stamp+"stdout P "+strings.Repeat("y", 16<<10)+"\n", 20) + stamp + "stdout F end\n"
	got := logTail(t, huge)
	require.Len(t, got, 2048)
	require.True(t, strings.HasSuffix(got, "yend\n"))
}

// shrunk is a file that is shorter than Stat reported, or whose reads fail.
type shrunk struct {
	*strings.Reader
	err error
}

func (s shrunk) ReadAt(p []byte, at int64) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Reader.ReadAt(p, at)
}

func TestReadTail_FileChangesDuringTheRead(t *testing.T) {
	t.Parallel()
	got, err := podrunner.ReadTail(shrunk{Reader: strings.NewReader("ab")}, 10, 100)
	require.NoError(t, err)
	require.Equal(t, "ab", got)
	broken := errors.New("broken")
	_, err = podrunner.LogTail(shrunk{err: broken}, 10)
	require.ErrorIs(t, err, broken)
	_, err = podrunner.ReadTail(strings.NewReader("x"), -5, 10)
	require.NoError(t, err)
}

func FuzzLogTail(f *testing.F) {
	f.Add("2026-01-02T03:04:05.000000006Z stdout F a\nx y P z")
	f.Add("\xff \xff F \xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := logTail(t, text)
		require.LessOrEqual(t, len(got), 2048)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, strings.Count(got, "\n"), 80)
	})
}
