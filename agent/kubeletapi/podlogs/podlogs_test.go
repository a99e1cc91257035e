package podlogs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is a time of a line, in seconds.
func at(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// line returns a line of a log for a spec such as "5 out P text".
func line(spec string) string {
	var seconds int
	var stream, tag string
	_, err := fmt.Sscan(spec, &seconds, &stream, &tag)
	if err != nil {
		return spec + "\n"
	}
	_, text, _ := strings.Cut(spec, tag+" ")
	return fmt.Sprintf("%s std%s %s %s\n", at(seconds).Format(time.RFC3339Nano), stream, tag, text)
}

func logText(specs ...string) string {
	var b strings.Builder
	for _, s := range specs {
		b.WriteString(line(s))
	}
	return b.String()
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// logs creates a folder with the logs of a container.
func logs(t *testing.T, files map[string]string) podlogs.Source {
	t.Helper()
	src := podlogs.Source{Root: t.TempDir(), Dir: "ns_pod_uid/app"}
	dir := filepath.Join(src.Root, src.Dir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return src
}

func read(t *testing.T, src podlogs.Source, o podlogs.Options) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, podlogs.Copy(t.Context(), &b, src, o))
	return b.String()
}

func TestCopy_Options(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{
		"0.log":                       logText("0 out F of another instance"),
		"1.log.20260102-030405.gz":    zipped(t, logText("1 out F one", "2 err F two", "3 out P three begins")),
		"1.log.20260102-030406":       logText("4 out F  and ends", "5 err F four"),
		"1.log.20260102-030406.gz":    "half of it",
		"1.log.20260102-030407.tmp":   "half of it",
		"1.log":                       logText("6 out F five", "nothing that a runtime writes", "7 err P si", "7 out F seven", "8 err F x", "9 out F") + strings.TrimSuffix(line("10 out F eight"), "\n"),
		"2.log":                       logText("11 out F later"),
		"readme":                      "x",
		"1.log.1":                     "x",
		"01.log":                      "x",
		"99999999999999999999999.log": "x",
	})
	src.Attempt = 1
	all := "one\ntwo\nthree begins and ends\nfour\nfive\nseven\nsix\n\neight\n"
	for name, c := range map[string]struct {
		o    podlogs.Options
		want string
	}{
		"all":                         {podlogs.Options{}, all},
		"stdout":                      {podlogs.Options{Stream: podlogs.Stdout}, "one\nthree begins and ends\nfive\nseven\n\neight\n"},
		"stderr":                      {podlogs.Options{Stream: podlogs.Stderr}, "two\nfour\nsix\n"},
		"since":                       {podlogs.Options{Since: at(5)}, "four\nfive\nseven\nsix\n\neight\n"},
		"since a part of a line":      {podlogs.Options{Since: at(4), Stream: podlogs.Stdout}, "five\nseven\n\neight\n"},
		"tail of the last file":       {podlogs.Options{TailLines: new(int64(2))}, "six\n\neight\n"},
		"tail of a split line":        {podlogs.Options{TailLines: new(int64(3)), Stream: podlogs.Stderr}, "two\nfour\nsix\n"},
		"tail of one stream":          {podlogs.Options{TailLines: new(int64(1)), Stream: podlogs.Stderr}, "six\n"},
		"tail over files":             {podlogs.Options{TailLines: new(int64(5))}, "four\nfive\nseven\nsix\n\neight\n"},
		"tail over compressed files":  {podlogs.Options{TailLines: new(int64(7))}, "two\nthree begins and ends\nfour\nfive\nseven\nsix\n\neight\n"},
		"more lines than there are":   {podlogs.Options{TailLines: new(int64(1000))}, all},
		"no lines":                    {podlogs.Options{TailLines: new(int64(0))}, "eight\n"},
		"timestamps":                  {podlogs.Options{TailLines: new(int64(1)), Stream: podlogs.Stderr, Timestamps: true}, "2026-01-02T03:00:07.000000000Z six\n"},
		"limit":                       {podlogs.Options{LimitBytes: 9}, "one\ntwo\nt"},
		"limit of all":                {podlogs.Options{LimitBytes: int64(len(all))}, all},
		"limit and tail":              {podlogs.Options{LimitBytes: 3, TailLines: new(int64(5))}, "fou"},
		"since what is to come":       {podlogs.Options{Since: at(1000)}, ""},
		"tail since what is to come":  {podlogs.Options{Since: at(1000), TailLines: new(int64(3))}, ""},
		"tail since":                  {podlogs.Options{Since: at(7), TailLines: new(int64(100))}, "seven\nsix\n\neight\n"},
		"stdout since, with its time": {podlogs.Options{Since: at(10), Timestamps: true}, "2026-01-02T03:00:10.000000000Z eight\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, read(t, src, c.o))
		})
	}
	t.Run("another instance", func(t *testing.T) {
		t.Parallel()
		other := src
		other.Attempt = 0
		require.Equal(t, "of another instance\n", read(t, other, podlogs.Options{}))
		other.Attempt = 7
		require.ErrorIs(t, podlogs.Copy(t.Context(), &strings.Builder{}, other, podlogs.Options{}), podlogs.ErrNoLog)
		other.Dir = "ns_pod_other/app"
		require.ErrorIs(t, podlogs.Copy(t.Context(), &strings.Builder{}, other, podlogs.Options{}), podlogs.ErrNoLog)
	})
}

// A rotation may come between the parts of a line.
func TestCopy_TailStartsAtALine(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(line("3 err F e"), 5000) // larger than the first window
	for name, older := range map[string]map[string]string{
		"plain":      {"0.log.20260102-030405": logText("1 out F a", "2 err P er", "2 out P ou", "3 err F a-err")},
		"compressed": {"0.log.20260102-030405.gz": zipped(t, logText("1 out F a", "2 err P er", "2 out P ou", "3 err F a-err"))},
		"far":        {"0.log.20260102-030405": logText("1 out F a", "2 out P ou", "2 out P") + many + line("3 err F era-err")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			older["0.log"] = logText("4 err P b", "4 out F t", "5 err F -err", "6 out F c")
			src := logs(t, older)
			for n, want := range map[int64]string{
				1: "c\n", 2: "b-err\nc\n", 3: "out\nb-err\nc\n", 4: "era-err\nout\nb-err\nc\n",
			} {
				require.Equal(t, want, read(t, src, podlogs.Options{TailLines: &n}), n)
			}
			require.Equal(t, "out\nc\n", read(t, src, podlogs.Options{TailLines: new(int64(2)), Stream: podlogs.Stdout}))
			require.Equal(t, "c\n", read(t, src, podlogs.Options{TailLines: new(int64(1)), Stream: podlogs.Stdout}))
		})
	}
	other := logs(t, map[string]string{"0.log": logText("1 out P of another instance"), "1.log": logText("2 out F b")})
	other.Attempt = 1
	require.Equal(t, "b\n", read(t, other, podlogs.Options{TailLines: new(int64(1))}))
	open := logs(t, map[string]string{"0.log": logText("1 out P not ", "2 err F b", "3 out P whole")})
	require.Equal(t, "b\nnot whole\n", read(t, open, podlogs.Options{TailLines: new(int64(1))}))
}

func TestCopy_TailOfALargeFile(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	var want []string
	for i := range 5000 {
		long := strings.Repeat("x", i%200)
		switch i % 7 {
		case 3: // split, with a line of the other stream in between
			text.WriteString(line(fmt.Sprintf("%d out P %d%s", i, i, long)))
			text.WriteString(line(fmt.Sprintf("%d err F e%d", i, i)))
			text.WriteString(line(fmt.Sprintf("%d out F end", i)))
			want = append(want, fmt.Sprintf("e%d", i), fmt.Sprintf("%d%send", i, long))
		default:
			text.WriteString(line(fmt.Sprintf("%d out F %d%s", i, i, long)))
			want = append(want, fmt.Sprintf("%d%s", i, long))
		}
	}
	src := logs(t, map[string]string{"0.log": text.String()})
	for _, n := range []int{1, 2, 3, 4, 5, 100, 333, 567, 999, 2000, len(want) - 1, len(want), len(want) + 1} {
		got := read(t, src, podlogs.Options{TailLines: new(int64(n))})
		require.Equal(t, strings.Join(want[max(len(want)-n, 0):], "\n")+"\n", got, n)
	}
}

func TestCopy_LinesOfAnyLength(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64<<10 - 40, 64 << 10, 1<<20 - 1, 1 << 20, 3 << 20} {
		long := strings.Repeat("0123456789", size/10+1)[:size]
		src := logs(t, map[string]string{"0.log": logText("0 out F "+long, "1 out F next")})
		got := read(t, src, podlogs.Options{})
		require.Equal(t, long+"next", strings.ReplaceAll(got, "\n", ""), size)
		if size < 1<<20-100 {
			require.Equal(t, long+"\nnext\n", got)
		}
		require.Equal(t, "next\n", read(t, src, podlogs.Options{TailLines: new(int64(1))}))
	}
	var parts []string
	for range 300 {
		parts = append(parts, "0 out P "+strings.Repeat("y", 16<<10))
	}
	src := logs(t, map[string]string{"0.log": logText(append(parts, "0 out F end", strings.Repeat("no log line ", 500_000))...)})
	got := read(t, src, podlogs.Options{})
	require.Len(t, strings.ReplaceAll(got, "\n", ""), 300*16<<10+len("end"))
	require.LessOrEqual(t, strings.Count(got, "\n"), 6)
}

func TestCopy_ReadsNothingOutsideTheFolder(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(line("1 out F secret")), 0o600))
	t.Run("a link in the folder", func(t *testing.T) {
		t.Parallel()
		src := logs(t, nil)
		require.NoError(t, os.Symlink(secret, filepath.Join(src.Root, src.Dir, "0.log")))
		var b strings.Builder
		require.ErrorContains(t, podlogs.Copy(t.Context(), &b, src, podlogs.Options{}), "not a regular file")
		require.Empty(t, b.String())
	})
	t.Run("a folder that is a link", func(t *testing.T) {
		t.Parallel()
		src := logs(t, nil)
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(secret), "0.log"), []byte(line("1 out F secret")), 0o600))
		require.NoError(t, os.Remove(filepath.Join(src.Root, src.Dir)))
		require.NoError(t, os.Symlink(filepath.Dir(secret), filepath.Join(src.Root, src.Dir)))
		var b strings.Builder
		require.Error(t, podlogs.Copy(t.Context(), &b, src, podlogs.Options{}))
		require.Empty(t, b.String())
	})
	t.Run("a folder that is a link to another pod's", func(t *testing.T) {
		t.Parallel()
		src := logs(t, map[string]string{"0.log": line("1 out F another pod's")})
		require.NoError(t, os.Mkdir(filepath.Join(src.Root, "ns_mine_uid2"), 0o755))
		require.NoError(t, os.Symlink("../ns_pod_uid/app", filepath.Join(src.Root, "ns_mine_uid2/app")))
		src.Dir = "ns_mine_uid2/app"
		var b strings.Builder
		require.Error(t, podlogs.Copy(t.Context(), &b, src, podlogs.Options{}))
		require.Empty(t, b.String())
	})
	t.Run("a path that leads out", func(t *testing.T) {
		t.Parallel()
		src := logs(t, map[string]string{"0.log": line("1 out F mine")})
		for _, dir := range []string{"../../../../../../etc", "/etc", "ns_pod_uid/app/../../..", ""} {
			src.Dir = dir
			var b strings.Builder
			require.Error(t, podlogs.Copy(t.Context(), &b, src, podlogs.Options{}), dir)
			require.Empty(t, b.String())
		}
	})
	t.Run("a folder in the place of a file", func(t *testing.T) {
		t.Parallel()
		src := logs(t, nil)
		require.NoError(t, os.Mkdir(filepath.Join(src.Root, src.Dir, "0.log"), 0o700))
		require.ErrorContains(t, podlogs.Copy(t.Context(), &strings.Builder{}, src, podlogs.Options{}), "not a regular file")
	})
	t.Run("a file with the name of a compressed file, but not compressed", func(t *testing.T) {
		t.Parallel()
		src := logs(t, map[string]string{"0.log.20260102-030405.gz": "nonsense", "0.log": line("1 out F mine")})
		require.ErrorContains(t, podlogs.Copy(t.Context(), &strings.Builder{}, src, podlogs.Options{}), "0.log.20260102-030405.gz")
		require.Equal(t, "mine\n", read(t, src, podlogs.Options{TailLines: new(int64(1))}))
	})
}

func TestSortNames_OrderOfTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"2.log", "10.log.20250102-030405.gz", "10.log.20260102-030405", "10.log",
	}, podlogs.SortNames([]string{
		"10.log", "2.log", "10.log.20260102-030405", "10.log.20260102-030405.gz", "10.log.20250102-030405.gz",
		"10.log.gz", "10.log.20250102", "10.log.20250102-030405.5", "x.log", ".log", "-1.log", "+1.log", "4294967296.log",
	}))
}

func TestCopy_EndsWithErrorsOfWriterAndContext(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{"0.log": strings.Repeat(line("1 out F text"), 10_000)})
	require.ErrorIs(t, podlogs.Copy(t.Context(), broken{}, src, podlogs.Options{}), errBroken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, podlogs.Copy(ctx, &strings.Builder{}, src, podlogs.Options{}), context.Canceled)
	require.ErrorIs(t, podlogs.Copy(ctx, &strings.Builder{}, src, podlogs.Options{Follow: true}), context.Canceled)
}

var errBroken = fmt.Errorf("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// Copy needs 20 ms for 10 MB of short lines, and 1 ms for the last hundred of these lines.
func BenchmarkCopy(b *testing.B) {
	root := b.TempDir()
	src := podlogs.Source{Root: root, Dir: "app"}
	require.NoError(b, os.Mkdir(filepath.Join(root, "app"), 0o700))
	text := strings.Repeat(line("1 out F "+strings.Repeat("x", 60)), 100_000)
	require.NoError(b, os.WriteFile(filepath.Join(root, "app", "0.log"), []byte(text), 0o600))
	for name, o := range map[string]podlogs.Options{"all/10MB": {}, "tail/10MB/lines=100": {TailLines: new(int64(100))}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, podlogs.Copy(b.Context(), discard{}, src, o))
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestCopy_AllocatesLittle(t *testing.T) {
	src := logs(t, map[string]string{"0.log": strings.Repeat(line("1 out F text"), 10_000)})
	allocs := testing.AllocsPerRun(3, func() {
		require.NoError(t, podlogs.Copy(t.Context(), discard{}, src, podlogs.Options{Timestamps: true}))
	})
	require.Less(t, allocs, 200.0, "Copy must not allocate for each line")
}
