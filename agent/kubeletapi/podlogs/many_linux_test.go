package podlogs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

func TestCopy_FewOfManyFilesAreOpen(t *testing.T) {
	t.Parallel()
	const files = 2000
	content := map[string]string{"0.log": line("3000 out F last")}
	var all strings.Builder
	for i := range files {
		content[rotatedName(0, i)] = line(fmt.Sprintf("%d out F line %d", i, i))
		fmt.Fprintf(&all, "line %d\n", i)
	}
	all.WriteString("last\n")
	src := logs(t, content)
	src.Ended = func() bool { return true }
	for name, o := range map[string]podlogs.Options{
		"all": {}, "tail": {TailLines: new(int64(files + 1))}, "tail of more": {TailLines: new(int64(2 * files))},
		"since": {Since: at(0)}, "follow": {Follow: true},
	} {
		out := &client{root: src.Root}
		require.NoError(t, podlogs.CopyFast(t.Context(), out, src, o), name)
		require.Equal(t, all.String(), out.String(), name)
		require.LessOrEqual(t, out.most, mostOpen, name)
	}
	require.Zero(t, openBelow(src.Root))
}

func TestCopy_RotatedWhileAClientReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    podlogs.Options
		want string
	}{
		"all":           {podlogs.Options{}, "zero\nthe rest is re\nof two\nthree, split\nfour\nlast\n"},
		"tail":          {podlogs.Options{TailLines: new(int64(6))}, "zero\nthe rest is re\nof two\nthree, split\nfour\nlast\n"},
		"tail of fewer": {podlogs.Options{TailLines: new(int64(4))}, "of two\nthree, split\nfour\nlast\n"},
		"follow":        {podlogs.Options{Follow: true}, "zero\nthe rest is re\nof two\nthree, split\nfour\nlast\nnew\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zipped3 := zipped(t, line("3 out P three, "))
			src := logs(t, map[string]string{
				rotatedName(0, 0): logText("0 out F zero", "0 out P the rest is re"),
				rotatedName(0, 1): logText("1 out F moved"),
				rotatedName(0, 2): logText("2 out F of two"),
				rotatedName(0, 3): logText("3 out P three, "),
				rotatedName(0, 4): logText("4 out F split", "4 out F four"),
				"0.log":           logText("5 out F last"),
			})
			path := func(file string) string { return filepath.Join(src.Root, src.Dir, file) }
			var over atomic.Bool
			src.Ended = over.Load
			out := &client{root: src.Root, first: func() {
				require.NoError(t, os.Remove(path(rotatedName(0, 0))))
				require.NoError(t, os.Remove(path(rotatedName(0, 1))))
				require.NoError(t, os.WriteFile(path(rotatedName(0, 3)+".gz"), []byte(zipped3), 0o600))
				require.NoError(t, os.Remove(path(rotatedName(0, 3))))
				require.NoError(t, os.Rename(path("0.log"), path(rotatedName(0, 5))))
				require.NoError(t, os.WriteFile(path("0.log"), []byte(line("6 out F new")), 0o600))
				info, err := os.Lstat(path("0.log"))
				require.NoError(t, err)
				// Files with the same modification time must be treated as different files.
				require.NoError(t, os.Chtimes(path(rotatedName(0, 3)+".gz"), time.Time{}, info.ModTime()))
				over.Store(true)
			}}
			require.NoError(t, podlogs.CopyFast(t.Context(), out, src, c.o))
			require.Equal(t, c.want, out.String())
			require.LessOrEqual(t, out.most, mostOpen)
			require.Zero(t, openBelow(src.Root))
		})
	}
}

func TestCopy_EarlierInstanceRotatedWhileAClientReads(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{
		"0.log": line("0 out F zero"), "1.log": line("1 out F one"), "2.log": line("2 out F two"), "3.log": line("3 out F three"),
	})
	src.Ended = func() bool { return true }
	out := &client{root: src.Root, first: func() {
		dir := filepath.Join(src.Root, src.Dir)
		require.NoError(t, os.Rename(filepath.Join(dir, "1.log"), filepath.Join(dir, rotatedName(1, 1))))
		require.NoError(t, os.Remove(filepath.Join(dir, "2.log")))
	}}
	require.NoError(t, podlogs.CopyFast(t.Context(), out, src, podlogs.Options{Follow: true}))
	require.Equal(t, "zero\none\nthree\n", out.String())
}

// A client that does not read for a while finds many rotated files when it continues.
func TestFollower_FewOfManyFilesAreOpen(t *testing.T) {
	t.Parallel()
	const rotations = 300
	c := newContainer(t)
	c.write("0 out F first")
	want := "first\n"
	for i := range rotations {
		want += fmt.Sprintf("line %d\n", i)
	}
	out := &client{root: c.src.Root, first: func() {
		for i := range rotations {
			require.NoError(t, c.file.Close())
			require.NoError(t, os.Rename(c.path("0.log"), c.path(rotatedName(0, i))))
			c.create(0)
			c.write(fmt.Sprintf("%d out F line %d", i, i))
		}
		c.over.Store(true)
	}}
	began := time.Now()
	require.NoError(t, podlogs.CopyFast(t.Context(), out, c.src, podlogs.Options{Follow: true}))
	require.Equal(t, want, out.String())
	require.LessOrEqual(t, out.most, mostOpen+1, "open files, including the container's own log")
	require.Less(t, time.Since(began), rotations*20*time.Millisecond, "the follower must wait for late lines only in the last file but one")
}
