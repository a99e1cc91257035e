package podlogs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
)

// firstWindow is how much of the end of a file is looked at first for its last lines.
const firstWindow = 64 << 10

// start is where reading begins.
type start struct {
	file int   // of the files
	at   int64 // in it, uncompressed
	// opened is the file if it is open already, and not the last one.
	opened *logFile
	// from is where the first line that counts ends: those that end before it are of
	// others. then is that in the next file.
	from, then int64
}

// findTail returns where the last n of the wanted lines begin. Each file but the last
// is open only while it is read, and where they begin in it.
func (c *copier) findTail(names []name, last *logFile, n int64) (start, error) {
	var newer []Stream // whose first lines in the file after this one count
	for i, name := range slices.Backward(names) {
		if i < len(names)-1 && name.attempt != names[i+1].attempt {
			newer = nil
		}
		l, opened := last, (*logFile)(nil)
		if i < len(names)-1 {
			var err error
			if l, err = c.dir.open(name); errors.Is(err, fs.ErrNotExist) && name.stamp != present {
				return start{file: i + 1}, nil // rotation has removed it, after those before it
			} else if err != nil {
				return start{}, err
			}
			opened = l
		}
		found, err := tailOf(l, n, c.wants)
		if err == nil && int64(len(found.lines)) == n {
			s := found.start(i)
			s.at, s.opened = c.unended(l, newer, s.at), opened
			return c.fromBegin(s, names, found), nil
		}
		if opened != nil {
			_ = opened.close() // it was only read
		}
		if err != nil {
			return start{}, err
		}
		n, newer = n-int64(len(found.lines)), found.streams()
	}
	return start{}, nil
}

// fromBegin moves s to the file before if lines that count have begun there: a rotation
// may come between the parts of a line.
func (c *copier) fromBegin(s start, names []name, found tail) start {
	streams := found.streams()
	if s.file == 0 || names[s.file-1].attempt != names[s.file].attempt || len(streams) == 0 {
		return s
	}
	before, err := c.dir.open(names[s.file-1])
	if err != nil {
		return s // what is left of the line has to do
	}
	at := c.unended(before, streams, math.MaxInt64)
	if at == math.MaxInt64 {
		_ = before.close() // it was only read
		return s
	}
	if s.opened != nil {
		_ = s.opened.close() // it was only read
	}
	return start{file: s.file - 1, at: at, opened: before, from: math.MaxInt64, then: s.from}
}

// unended returns where lines of these streams begin in a file that go on in the next one,
// or at if that is earlier.
func (c *copier) unended(l *logFile, streams []Stream, at int64) int64 {
	for _, stream := range streams {
		t, err := tailOf(l, 1, func(l Line) bool { return l.Stream == stream && c.wants(l) })
		if err == nil {
			at = slices.Min(append(t.open, at))
		}
	}
	return at
}

// tail is the end of a file.
type tail struct {
	lines []span  // the last ones, oldest first
	end   int64   // of the last whole line
	open  []int64 // where lines begin that go on behind the end
	cut   bool    // such a line may have begun earlier
}

// span is where a line is in a file, from its first part to its last one.
type span struct {
	begin, end int64
	stream     Stream
	first      bool // of its stream, so that it may have begun in the file before
}

// streams returns those whose first line in the file is one of the last lines.
func (t tail) streams() (all []Stream) {
	for _, l := range t.lines {
		if l.first {
			all = append(all, l.stream)
		}
	}
	return all
}

func (t tail) start(file int) start {
	if len(t.lines) == 0 {
		return start{file: file, at: t.end, from: t.end}
	}
	s := start{file: file, at: t.lines[0].begin, from: t.lines[0].end}
	for _, l := range t.lines {
		s.at = min(s.at, l.begin)
	}
	for _, begin := range t.open {
		s.at = min(s.at, begin)
	}
	return s
}

// tailOf finds the last lines of a file, at most n. It looks at more and more of its
// end, so that a large file costs what its end does. A compressed one is read whole.
func tailOf(l *logFile, n int64, wanted func(Line) bool) (tail, error) {
	r, err := l.reader()
	if err != nil {
		return tail{}, err
	}
	if l.gzip {
		return scan(r, 0, n, wanted)
	}
	info, err := l.file.Stat()
	if err != nil {
		return tail{}, err
	}
	for window := int64(firstWindow); ; window *= 2 {
		from := max(info.Size()-window, 0)
		t, err := scan(io.NewSectionReader(l.file, from, info.Size()-from), from, n, wanted)
		if err != nil || from == 0 || !t.cut && int64(len(t.lines)) == n && (n > 0 || t.end > from) {
			return t, err
		}
	}
}

// scan finds the last lines of what is from an offset on. If that is not the begin of
// the file, the first line of each stream does not count: it may have begun before.
func scan(r io.Reader, from, n int64, wanted func(Line) bool) (tail, error) {
	t := tail{end: from}
	buffered := bufio.NewReader(r)
	if from > 0 {
		skipped, err := skipLine(buffered)
		if err != nil {
			return t, ignoreEOF(err) // a part of one line
		}
		from += skipped
		t.end = from
	}
	split, join, whole := newSplitter(buffered, from), newJoiner(), map[Stream]bool{}
	ring, next := []span(nil), 0
	for {
		p, err := split.next()
		if err != nil {
			t.lines = append(append(t.lines, ring[next:]...), ring[:next]...)
			t.noteOpen(join.rest(), wanted, func(s Stream) bool { return from == 0 || whole[s] })
			return t, ignoreEOF(err)
		}
		t.end = p.end
		line, ok := join.add(p)
		if !ok {
			continue
		}
		found := span{line.begin, line.end, line.Stream, !whole[line.Stream]}
		whole[line.Stream] = true
		switch {
		case !wanted(line.Line) || from > 0 && found.first:
		case int64(len(ring)) < n:
			ring = append(ring, found)
		case n > 0:
			ring[next] = found
			next = (next + 1) % len(ring)
		}
	}
}

// noteOpen notes the lines whose ends were not seen. isWhole says whether the begin of a
// stream's lines is known.
func (t *tail) noteOpen(parts []joined, wanted func(Line) bool, isWhole func(Stream) bool) {
	for _, p := range parts {
		if wanted(p.Line) {
			t.open, t.cut = append(t.open, p.begin), t.cut || !isWhole(p.Stream)
		}
	}
}

// skipLine reads to the end of a line and returns how much that was.
func skipLine(r *bufio.Reader) (n int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		n += int64(len(part))
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lineText appends a line as it is written out.
func lineText(to []byte, l *Line, timestamps bool) []byte {
	if timestamps {
		to = append(l.Time.AppendFormat(to, "2006-01-02T15:04:05.000000000Z07:00"), ' ')
	}
	return append(append(to, l.Text...), '\n')
}
