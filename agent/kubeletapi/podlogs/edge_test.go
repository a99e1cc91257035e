package podlogs_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

// aged sets the modification time of a log file.
func aged(t *testing.T, src podlogs.Source, file string, seconds int) {
	t.Helper()
	require.NoError(t, os.Chtimes(filepath.Join(src.Root, src.Dir, file), time.Time{}, at(seconds)))
}

// The file before Since is not read, but a line that starts there may end in the next file.
func TestCopy_SinceWithinALine(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{
		rotatedName(0, 1): "no compressed file, and not read", rotatedName(0, 2): logText("2 out P too "),
		"0.log": logText("5 out F old", "5 err F one", "6 out F two"),
	})
	require.NoError(t, os.Rename(filepath.Join(src.Root, src.Dir, rotatedName(0, 1)), filepath.Join(src.Root, src.Dir, rotatedName(0, 1)+".gz")))
	aged(t, src, rotatedName(0, 1)+".gz", 1)
	aged(t, src, rotatedName(0, 2), 2)
	require.Equal(t, "one\ntwo\n", read(t, src, podlogs.Options{Since: at(4)}))
	require.Equal(t, "too old\none\ntwo\n", read(t, src, podlogs.Options{TailLines: new(int64(3))}))

	other := logs(t, map[string]string{"0.log": logText("2 out P of another instance"), "1.log": logText("5 out F one")})
	aged(t, other, "0.log", 2)
	other.Ended = func() bool { return true }
	var b strings.Builder
	require.NoError(t, podlogs.CopyFast(t.Context(), &b, other, podlogs.Options{Since: at(4), Follow: true}))
	require.Equal(t, "one\n", b.String())
}

// A line from before Since that ends between selected lines is skipped completely.
func TestCopy_TailSinceWithinALine(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{"0.log": logText("1 out P too ", "3 err F one", "4 out F old", "5 err F two")})
	require.Equal(t, "one\ntwo\n", read(t, src, podlogs.Options{Since: at(2), TailLines: new(int64(2))}))
}

// The window at the end of a large file may start between the parts of a selected line.
func TestCopy_TailOfALineBeyondTheFirstWindow(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40_000)
	src := logs(t, map[string]string{"0.log": logText(
		"1 out F zero", "2 out P begin ", "3 err F "+long, "4 err F "+long, "5 err F a", "5 out F end", "6 err F b",
	)})
	for n, want := range map[int64]string{1: "b\n", 2: "begin end\nb\n", 3: "a\nbegin end\nb\n", 4: long + "\na\nbegin end\nb\n"} {
		require.Equal(t, want, read(t, src, podlogs.Options{TailLines: &n}), n)
	}
}

// The window may also start within an incomplete line.
func TestCopy_TailAfterAnIncompleteLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40_000)
	src := logs(t, map[string]string{"0.log": logText(
		"1 out F zero", "2 out P not ", "3 err F "+long, "4 err F "+long, "5 out P whole", "6 err F a",
	)})
	for n, want := range map[int64]string{0: "not whole\n", 1: "a\nnot whole\n", 2: long + "\na\nnot whole\n"} {
		require.Equal(t, want, read(t, src, podlogs.Options{TailLines: &n}), n)
	}
}

func TestCopy_LimitIsOfBytes(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{
		rotatedName(0, 1): logText("1 out F grün", "2 out P hal"), "0.log": logText("3 out F f", "4 out P not whole"),
	})
	all := "grün\nhalf\nnot whole\n"
	for n := 1; n <= len(all)+1; n++ {
		o := podlogs.Options{LimitBytes: int64(n)}
		require.Equal(t, all[:min(n, len(all))], read(t, src, o), n)
		out := newOutput()
		require.NoError(t, podlogs.Copy(t.Context(), out, src, o))
		require.Equal(t, all[:min(n, len(all))], out.String(), "the output must be flushed")
	}
	require.Equal(t, "2026-01-02T03:00:01", read(t, src, podlogs.Options{LimitBytes: 19, Timestamps: true}), "LimitBytes must include the timestamps")
	src.Ended = func() bool { t.Error("Ended must not be called without Follow"); return true }
	require.NoError(t, podlogs.CopyFast(t.Context(), io.Discard, src, podlogs.Options{LimitBytes: 3, Follow: true}))
}

func TestCopy_MissingLog(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*podlogs.Source){
		"no root":           func(s *podlogs.Source) { s.Root = filepath.Join(s.Root, "none") },
		"no pod":            func(s *podlogs.Source) { s.Dir = "none/app" },
		"no container":      func(s *podlogs.Source) { s.Dir = "ns_pod_uid/none" },
		"an instance later": func(s *podlogs.Source) { s.Attempt = 2 },
		"removed already":   func(s *podlogs.Source) { s.Attempt = 0 },
	} {
		for _, follow := range []bool{false, true} {
			src := logs(t, map[string]string{"1.log": line("1 out F one"), "0.log.tmp": line("0 out F zero")})
			src.Ended = func() bool { return true }
			change(&src)
			var b strings.Builder
			err := podlogs.CopyFast(t.Context(), &b, src, podlogs.Options{Follow: follow, TailLines: new(int64(1))})
			if follow && name == "removed already" {
				require.NoError(t, err)
				require.Equal(t, "one\n", b.String(), "a follower must continue with the next instance")
				continue
			}
			require.ErrorIs(t, err, podlogs.ErrNoLog, name)
			require.Empty(t, b.String())
		}
	}
	empty := logs(t, map[string]string{"0.log": ""})
	require.Empty(t, read(t, empty, podlogs.Options{}))
	require.Empty(t, read(t, empty, podlogs.Options{TailLines: new(int64(1))}))
}

// A node may lose power during the compression of a file.
func TestCopy_CompressedFileIsBroken(t *testing.T) {
	t.Parallel()
	whole := zipped(t, strings.Repeat(line("1 out F one"), 10))
	changed := []byte(whole)
	changed[len(changed)-6] ^= 1 // changes the checksum
	for name, text := range map[string]string{
		"empty": "", "cut in its head": whole[:5], "cut": whole[:len(whole)-9], "cut at its end": whole[:len(whole)-1], "changed": string(changed),
	} {
		src := logs(t, map[string]string{rotatedName(0, 1) + ".gz": text, "0.log": logText("2 out F two", "3 out F three")})
		for _, o := range []podlogs.Options{{}, {TailLines: new(int64(3))}, {TailLines: new(int64(100))}} {
			require.ErrorContains(t, podlogs.Copy(t.Context(), io.Discard, src, o), rotatedName(0, 1)+".gz: ", name)
		}
		require.Equal(t, "two\nthree\n", read(t, src, podlogs.Options{TailLines: new(int64(2))}), "%s: the broken file must not be read, because the next file has enough lines", name)
	}
}

// A request may be cancelled while a long log without selected lines is read.
func TestCopy_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{"0.log": strings.Repeat(line("1 out F one"), 5000), rotatedName(0, 1): line("0 out F zero")})
	ctx, cancel := context.WithCancel(t.Context())
	lines := 0
	out := writerFunc(func(p []byte) (int, error) {
		lines += strings.Count(string(p), "\n")
		cancel()
		return len(p), nil
	})
	require.ErrorIs(t, podlogs.Copy(ctx, out, src, podlogs.Options{}), context.Canceled)
	require.Less(t, lines, 5001)
	require.ErrorIs(t, podlogs.Copy(ctx, io.Discard, src, podlogs.Options{Since: at(100)}), context.Canceled)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestCopy_LinksAmongRotatedFilesAreNotRead(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{"0.log": logText("2 out F two"), "secret": line("1 out F secret")})
	require.NoError(t, os.Symlink("secret", filepath.Join(src.Root, src.Dir, rotatedName(0, 1))))
	for _, n := range []int64{2, 100} {
		var b strings.Builder
		require.ErrorContains(t, podlogs.Copy(t.Context(), &b, src, podlogs.Options{TailLines: &n}), "not a regular file")
		require.Empty(t, b.String())
	}
	require.Equal(t, "two\n", read(t, src, podlogs.Options{TailLines: new(int64(1))}))
	// The previous line may start in the older file, which must not be read.
	require.NoError(t, os.WriteFile(filepath.Join(src.Root, src.Dir, "0.log"), []byte(line("2 err P two")), 0o600))
	require.Equal(t, "two\n", read(t, src, podlogs.Options{TailLines: new(int64(0))}))
}
