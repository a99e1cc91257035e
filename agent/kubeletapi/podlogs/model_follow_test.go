package podlogs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

// TestFollower_Model follows a container that writes, restarts, and whose log is rotated and
// compressed, in random order. At the end, a model reads the files. The output of the
// follower must equal the model's.
func TestFollower_Model(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &randomWriter{container: newContainer(t), r: rand.New(rand.NewPCG(seed, 1))}
			w.files = []modelFile{{name: "0.log"}}
			out, wait := w.follow(podlogs.Options{Timestamps: true})
			for range 150 {
				w.step()
				if w.r.IntN(10) == 0 { // so that the follower keeps up
					out.await(t, modelCopy(w.written(), podlogs.Options{Timestamps: true}))
				}
			}
			w.over.Store(true)
			require.NoError(t, wait())
			require.Equal(t, modelCopy(modelLines(w.files), podlogs.Options{Timestamps: true}), out.String())
		})
	}
}

// randomWriter is a container, its runtime and the rotation of its log.
type randomWriter struct {
	*container
	r       *rand.Rand
	seconds int
	attempt uint32
	files   []modelFile
}

// written returns the complete lines written so far.
func (w *randomWriter) written() (lines []modelLine) {
	for _, l := range modelLines(w.files) {
		if !l.open || l.attempt < w.attempt {
			lines = append(lines, l)
		}
	}
	return lines
}

func (w *randomWriter) step() {
	last := &w.files[len(w.files)-1]
	switch w.r.IntN(20) {
	case 0:
		require.NoError(w.t, w.file.Close())
		w.attempt++
		w.create(int(w.attempt))
		w.files = append(w.files, modelFile{name: fmt.Sprintf("%d.log", w.attempt), attempt: w.attempt})
	case 1, 2:
		present := last.name
		last.name = rotatedName(int(w.attempt), len(w.files))
		require.NoError(w.t, os.Rename(w.path(present), w.path(last.name)))
		require.NoError(w.t, w.file.Close())
		w.create(int(w.attempt))
		w.files = append(w.files, modelFile{name: present, attempt: w.attempt})
	case 3:
		for i, f := range w.files {
			if f.attempt == w.attempt && strings.Contains(f.name, ".log.") && !strings.HasSuffix(f.name, ".gz") {
				compress(w.container, f.name, f.text)
				w.files[i].name += ".gz"
			}
		}
	default:
		w.seconds++
		spec := fmt.Sprintf("%d %s %s %d.", w.seconds, []string{"out", "err"}[w.r.IntN(2)], []string{"F", "F", "P"}[w.r.IntN(3)], w.seconds)
		last.text += line(spec)
		w.write(spec)
	}
}

// compress compresses a rotated file as the rotation does: the new file gets the modification
// time of the old file, which is removed last.
func compress(c *container, name, text string) {
	info, err := os.Stat(c.path(name))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(c.path(name+".tmp"), []byte(zipped(c.t, text)), 0o600))
	require.NoError(c.t, os.Chtimes(c.path(name+".tmp"), info.ModTime(), info.ModTime()))
	require.NoError(c.t, os.Rename(c.path(name+".tmp"), c.path(name+".gz")))
	require.NoError(c.t, os.Remove(c.path(name)))
}

// A follower may be busy while the file that it reads is rotated and compressed, or removed.
func TestFollower_FileIsCompressedOrRemovedWhileItReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		remove bool
		before string // a file that was rotated before
	}{
		"compressed": {}, "compressed, after another": {before: rotatedName(0, 1)},
		"removed": {remove: true}, "removed, after another": {remove: true, before: rotatedName(0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newContainer(t)
			want := ""
			if c.before != "" {
				require.NoError(t, os.WriteFile(k.path(c.before), []byte(line("1 out F before")), 0o600))
				want = "before\n"
			}
			k.write("2 out F one", "3 out P half, ")
			out := &client{root: k.src.Root, first: func() {
				require.NoError(t, os.Rename(k.path("0.log"), k.path(rotatedName(0, 3))))
				if c.remove {
					require.NoError(t, os.Remove(k.path(rotatedName(0, 3))))
				} else {
					compress(k, rotatedName(0, 3), logText("2 out F one", "3 out P half, "))
				}
				require.NoError(t, k.file.Close())
				k.create(0)
				k.write("4 out F and half", "5 out F two")
				k.over.Store(true)
			}}
			require.NoError(t, podlogs.CopyFast(t.Context(), out, k.src, podlogs.Options{Follow: true}))
			require.Equal(t, want+"one\nhalf, and half\ntwo\n", out.String())
		})
	}
}

// An administrator may truncate a log to free space.
func TestFollower_FileShrinks(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.write("1 out F one", "2 out F two")
	out, wait := c.follow(podlogs.Options{})
	out.await(t, "one\ntwo\n")
	require.NoError(t, c.file.Truncate(0))
	c.write("3 out F 3")
	out.await(t, "one\ntwo\n3\n")
	c.write("4 out F four, which is longer than all lines before", "5 out F five")
	out.await(t, "one\ntwo\n3\nfour, which is longer than all lines before\nfive\n")
	require.NoError(t, c.file.Truncate(0))
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, "one\ntwo\n3\nfour, which is longer than all lines before\nfive\n", out.String())
}

// The offset at which the last lines started has no meaning in a truncated file.
func TestFollower_FileShrinksAfterATail(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.write("1 out F one, which is longer than all lines after the truncation", "2 out F two")
	last := int64(1)
	out, wait := c.follow(podlogs.Options{TailLines: &last})
	out.await(t, "two\n")
	require.NoError(t, c.file.Truncate(0))
	c.write("3 out F 3")
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, "two\n3\n", out.String())
}

// A file may be truncated while its only line is incomplete.
func TestFollower_FileShrinksWithinALine(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	_, err := c.file.WriteString(line("1 out F an incomplete line")[:40])
	require.NoError(t, err)
	out, wait := c.follow(podlogs.Options{})
	<-out.changed
	require.NoError(t, c.file.Truncate(0))
	c.write("2 out F 2")
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, "2\n", out.String())
}

// The container may restart twice between two checks, and the instance in between may have
// written nothing.
func TestFollower_RestartsWithoutOutput(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	out, wait := c.follow(podlogs.Options{Since: at(2)})
	<-out.changed
	c.write("1 out F too old", "2 out F one", "3 err P never whole")
	for attempt := 1; attempt <= 3; attempt++ {
		require.NoError(t, c.file.Close())
		c.create(attempt)
	}
	c.write("4 out F two")
	out.await(t, "one\nnever whole\ntwo\n")
	// Files that do not belong to the log, or belong to an earlier instance, do not end or
	// restart the follower.
	require.NoError(t, os.WriteFile(c.path("2.log.bak"), []byte(line("5 out F copy")), 0o600))
	require.NoError(t, os.WriteFile(c.path("1.log"), []byte(line("5 out F late")), 0o600))
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, "one\nnever whole\ntwo\n", out.String())
}

// A line whose beginning was written before the follower started, in the same or an older
// file, is written completely.
func TestFollower_TailWithinALine(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	require.NoError(t, os.WriteFile(c.path(rotatedName(0, 1)), []byte(logText("0 err F old", "1 err P older ")), 0o600))
	c.write("2 out F one", "3 out P half ", "3 err P part, ")
	for n := range int64(2) {
		out, wait := c.follow(podlogs.Options{TailLines: &n})
		<-out.changed
		t.Cleanup(func() {
			require.NoError(t, wait())
			require.Equal(t, []string{"", "one\n"}[n]+"half a line\nolder part, end\n", out.String(), n)
		})
	}
	c.write("4 out F a line", "5 err F end")
	c.over.Store(true)
}

// A follower closes all files when its client has disconnected or its context is done.
func TestFollower_EndsDuringARotation(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		c := newContainer(t)
		c.write("1 out F one")
		ctx, cancel := context.WithCancel(t.Context())
		out := &stubborn{output: newOutput(), fail: make(chan struct{})}
		done := make(chan error, 1)
		go func() { done <- podlogs.CopyFast(ctx, out, c.src, podlogs.Options{Follow: true}) }()
		out.await(t, "one\n")
		if broken {
			close(out.fail)
		}
		require.NoError(t, os.Rename(c.path("0.log"), c.path(rotatedName(0, 1))))
		require.NoError(t, c.file.Close())
		c.create(0)
		c.write("2 out F two")
		if broken {
			require.ErrorIs(t, <-done, errBroken)
		}
		cancel()
		if !broken {
			require.ErrorIs(t, <-done, context.Canceled)
		}
	}
}

// stubborn is a writer whose writes fail after a while.
type stubborn struct {
	*output
	fail chan struct{}
}

func (s *stubborn) Write(p []byte) (int, error) {
	select {
	case <-s.fail:
		return 0, errBroken
	default:
		return s.output.Write(p)
	}
}
