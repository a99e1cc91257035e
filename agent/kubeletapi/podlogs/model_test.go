package podlogs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

// modelFile is a file of a log in the model.
type modelFile struct {
	name    string
	attempt uint32
	seconds int // time of its last line
	text    string
}

// modelLine is a line of a container, joined from its parts.
type modelLine struct {
	attempt uint32
	seconds int
	stream  podlogs.Stream
	text    string
	open    bool // its end is missing, so that it does not count for TailLines
}

// modelLog creates random lines with rising times. No line spans three files.
type modelLog struct {
	r       *rand.Rand
	seconds int
	open    map[string]int // streams with an incomplete line, with the index of the file in which the line starts
}

// files returns the files of a log of up to three instances, oldest first.
func (m *modelLog) files() (all []modelFile) {
	for attempt := range uint32(1 + m.r.IntN(3)) {
		m.open = map[string]int{}
		rotated := m.r.IntN(4)
		for n := range rotated + 1 {
			f := modelFile{name: fmt.Sprintf("%d.log", attempt), attempt: attempt}
			if n < rotated {
				f.name = rotatedName(int(attempt), n)
			}
			for range m.r.IntN(8) {
				f.text += m.line(n)
			}
			for _, stream := range []string{"out", "err"} {
				if began, ok := m.open[stream]; ok && began < n {
					f.text += m.part(stream, "F", n)
				}
			}
			if n == rotated && m.r.IntN(3) == 0 {
				f.text = strings.TrimSuffix(f.text, "\n")
			}
			f.seconds = m.seconds
			all = append(all, f)
		}
	}
	return all
}

// line returns a line of file n: a complete line, a part of a line, or an invalid line.
func (m *modelLog) line(n int) string {
	if m.r.IntN(12) == 0 {
		return []string{"\n", "no line of a log\n", "\x00\x00\x00\n"}[m.r.IntN(3)]
	}
	return m.part([]string{"out", "err"}[m.r.IntN(2)], []string{"F", "F", "P"}[m.r.IntN(3)], n)
}

func (m *modelLog) part(stream, tag string, n int) string {
	m.seconds++
	if _, ok := m.open[stream]; tag == "F" {
		delete(m.open, stream)
	} else if !ok {
		m.open[stream] = n
	}
	text := fmt.Sprintf("%d%s.", m.seconds, strings.Repeat("x", m.r.IntN(4)))
	// The first window of tailOf must not start after the start of an incomplete line.
	if tag == "F" && len(m.open) == 0 && m.r.IntN(12) == 0 {
		text += strings.Repeat("y", 10_000+m.r.IntN(60_000))
	}
	return line(fmt.Sprintf("%d %s %s %s", m.seconds, stream, tag, text))
}

// lineReader joins the parts of lines.
type lineReader struct {
	lines []modelLine
	open  map[podlogs.Stream]*modelLine
}

// modelLines returns the lines of the files, in the order of their ends.
func modelLines(files []modelFile) []modelLine {
	r := &lineReader{open: map[podlogs.Stream]*modelLine{}}
	for i, f := range files {
		for text := range strings.Lines(f.text) {
			r.add(f.attempt, text)
		}
		if i < len(files)-1 && files[i+1].attempt == f.attempt {
			continue
		}
		for _, s := range []podlogs.Stream{podlogs.Stdout, podlogs.Stderr} {
			if l := r.open[s]; l != nil {
				l.open = true
				r.lines = append(r.lines, *l)
			}
		}
		clear(r.open)
	}
	return r.lines
}

func (r *lineReader) add(attempt uint32, text string) {
	l, err := podlogs.ParseLine([]byte(text))
	if err != nil {
		return
	}
	if r.open[l.Stream] == nil {
		r.open[l.Stream] = &modelLine{attempt: attempt, seconds: int(l.Time.Sub(at(0)) / time.Second), stream: l.Stream}
	}
	r.open[l.Stream].text += string(l.Text)
	if !l.Partial {
		r.open[l.Stream].open = !strings.HasSuffix(text, "\n")
		r.lines = append(r.lines, *r.open[l.Stream])
		delete(r.open, l.Stream)
	}
}

// modelCopy returns what Copy writes for the lines: the selected last lines, and the incomplete
// lines of the last instance.
func modelCopy(lines []modelLine, o podlogs.Options) string {
	left := int64(len(lines))
	if o.TailLines != nil {
		left = *o.TailLines
	}
	var texts []string
	for _, l := range slices.Backward(lines) {
		if o.Stream != podlogs.All && o.Stream != l.stream || at(l.seconds).Before(o.Since) {
			continue
		}
		if left == 0 && (!l.open || l.attempt != lines[len(lines)-1].attempt) {
			break
		}
		if !l.open {
			left--
		}
		text := l.text + "\n"
		if o.Timestamps {
			text = at(l.seconds).Format("2006-01-02T15:04:05.000000000Z07:00") + " " + text
		}
		texts = append(texts, text)
	}
	slices.Reverse(texts)
	all := strings.Join(texts, "")
	if o.LimitBytes > 0 {
		all = all[:min(int64(len(all)), o.LimitBytes)]
	}
	return all
}

func randomOptions(r *rand.Rand) (o podlogs.Options) {
	o.Stream = []podlogs.Stream{podlogs.All, podlogs.All, podlogs.Stdout, podlogs.Stderr}[r.IntN(4)]
	if r.IntN(3) > 0 {
		o.TailLines = new(r.Int64N(12))
	}
	if r.IntN(3) == 0 {
		o.Since = at(r.IntN(30))
	}
	if r.IntN(4) == 0 {
		o.LimitBytes = 1 + r.Int64N(60)
	}
	o.Timestamps, o.Follow = r.IntN(4) == 0, r.IntN(10) == 0
	return o
}

// writeModel writes the files, some of them compressed, with the ages that they have on a node.
func writeModel(t *testing.T, r *rand.Rand, files []modelFile) podlogs.Source {
	t.Helper()
	src := logs(t, nil)
	for _, f := range files {
		if strings.Contains(f.name, ".log.") && r.IntN(4) == 0 {
			f.name, f.text = f.name+".gz", zipped(t, f.text)
		}
		path := filepath.Join(src.Root, src.Dir, f.name)
		require.NoError(t, os.WriteFile(path, []byte(f.text), 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, at(f.seconds)))
	}
	src.Ended = func() bool { return true }
	return src
}

// TestCopy_Model compares Copy with a model that reads all files first and then selects the
// lines.
func TestCopy_Model(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		files := (&modelLog{r: r}).files()
		src := writeModel(t, r, files)
		for range 8 {
			o := randomOptions(r)
			src.Attempt = uint32(r.IntN(int(files[len(files)-1].attempt) + 1))
			lines := modelLines(slices.DeleteFunc(slices.Clone(files), func(f modelFile) bool {
				return f.attempt < src.Attempt || f.attempt > src.Attempt && !o.Follow
			}))
			var got strings.Builder
			require.NoError(t, podlogs.CopyFast(t.Context(), &got, src, o))
			wants := []string{modelCopy(lines, o)}
			if o.TailLines != nil && !o.Since.IsZero() {
				// Copy counts a line by its part in the file in which the line ends. If the
				// line starts in the previous file and before Since, Copy counts the line but
				// does not write it. This can happen to one line of each stream.
				for less := range min(*o.TailLines, 2) {
					fewer := o
					fewer.TailLines = new(*o.TailLines - less - 1)
					wants = append(wants, modelCopy(lines, fewer))
				}
			}
			require.Contains(t, wants, got.String(), "seed %d, attempt %d, %+v, files %+v", seed, src.Attempt, o, files)
		}
	}
}
