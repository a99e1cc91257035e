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
	corev1 "k8s.io/api/core/v1"

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
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "whoever runs in the container may write")
	require.NoError(t, os.WriteFile(path, []byte("bye"), 0o600))
	require.Equal(t, "bye", podrunner.TerminationMessage(path, "", corev1.TerminationMessageReadFile, 1))

	_, err = podrunner.MakeTerminationLog(root, "uid", "app", 3)
	require.NoError(t, err)
	require.Empty(t, podrunner.TerminationMessage(path, "", corev1.TerminationMessageReadFile, 1), "made again, it says nothing")

	for _, name := range []string{"..", "a/b", ""} {
		_, err := podrunner.MakeTerminationLog(root, "uid", name, 0)
		require.ErrorContains(t, err, "is not the name of a folder", name)
	}
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "evil")))
	_, err = podrunner.MakeTerminationLog(root, "evil", "app", 0)
	require.Error(t, err)
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left, "no link is followed out of the root")
}

func TestTerminationMessage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const readFile, fallback = corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError
	log := file("log", "2026-01-02T03:04:05.000000006Z stderr F it broke\n")
	said, empty, missing := file("said", "words"), file("empty", ""), filepath.Join(dir, "missing")
	long := file("long", strings.Repeat("a", 100)+strings.Repeat("b", 4095)+"\xff")
	for name, c := range map[string]struct {
		file, log string
		policy    corev1.TerminationMessagePolicy
		code      int32
		want      string
	}{
		"what it said":              {said, log, fallback, 1, "words"},
		"nothing, and no fallback":  {empty, log, readFile, 1, ""},
		"nothing, so its log":       {empty, log, fallback, 1, "it broke\n"},
		"nothing, but it succeeded": {empty, log, fallback, 0, ""},
		"no file":                   {missing, log, fallback, 137, "it broke\n"},
		"no file is known":          {"", log, fallback, 137, "it broke\n"},
		"no log": {empty, missing, fallback, 1, "Error on reading termination message from logs: " +
			"failed to try resolving symlinks in path \"" + missing + "\": lstat " + missing + ": no such file or directory"},
		"no log is known":        {empty, "", fallback, 1, ""},
		"more than there may be": {long, log, fallback, 1, strings.Repeat("b", 4095)},
		"a folder":               {dir, log, fallback, 1, "Error on reading termination log " + dir + ": not a regular file"},
		"a folder for a log":     {empty, dir, fallback, 1, "Error on reading termination message from logs: not a regular file"},
	} {
		require.Equal(t, c.want, podrunner.TerminationMessage(c.file, c.log, c.policy, c.code), name)
	}
	require.Contains(t, podrunner.TerminationMessage(filepath.Join(said, "x"), "", readFile, 1), "Error on reading termination log ")
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
	require.Equal(t, "ab\n", logTail(t, stamp+"stdout P a\n"+stamp+"stdout F b\n"), "a line that was split")
	require.Equal(t, "ab", logTail(t, stamp+"stdout F:x a\n"+stamp+"stdout P b")[0:1]+"b", "one that goes on")
	require.Equal(t, "a\n", logTail(t, "nonsense\n"+stamp+"stdout F a\n\n"), "others are passed over")

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

// shrunk is a file that has become shorter since it was looked at, or broken.
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

func TestFilesThatChangeWhileTheyAreRead(t *testing.T) {
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
