package podlogs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
)

// firstWindow is the size of the part at the end of a file in which tailOf first searches for the
// last lines.
const firstWindow = 64 << 10

// start is the position at which copying starts.
type start struct {
	file int   // index of the file
	at   int64 // offset in the uncompressed file
	// opened is this file if it is open and not the last file. Otherwise, opened is nil.
	opened *logFile
	// Lines that end before these offsets are skipped: from is the offset in this file, and
	// nextFrom is the offset in the next file.
	from, nextFrom int64
}

// findTail returns the start of the last n selected lines. It closes each file that it opens,
// except the file in which the lines start.
func (c *copier) findTail(names []name, last *logFile, n int64) (start, error) {
	var newer []Stream // streams whose first line in the next file is selected or incomplete
	for i, name := range slices.Backward(names) {
		if i < len(names)-1 && name.attempt != names[i+1].attempt {
			newer = nil
		}
		l, opened := last, (*logFile)(nil)
		if i < len(names)-1 {
			var err error
			if l, err = c.dir.open(name); errors.Is(err, fs.ErrNotExist) && name.stamp != present {
				return start{file: i + 1}, nil // rotation has removed this file and all older files
			} else if err != nil {
				return start{}, err
			}
			opened = l
		}
		found, err := tailOf(l, n, c.wants)
		if err == nil && int64(len(found.lines)) == n {
			s := found.start(i)
			s.at, s.opened = unended(l, newer, s.at), opened
			return c.fromBegin(s, names, found), nil
		}
		if opened != nil {
			_ = opened.close() // read-only
		}
		if err != nil {
			return start{}, err
		}
		n, newer = n-int64(len(found.lines)), found.streams()
	}
	return start{}, nil
}

// fromBegin moves s to the previous file if a selected line starts there, because a rotation may
// separate the parts of a line.
func (c *copier) fromBegin(s start, names []name, found tail) start {
	streams := found.streams()
	if s.file == 0 || names[s.file-1].attempt != names[s.file].attempt || len(streams) == 0 {
		return s
	}
	before, err := c.dir.open(names[s.file-1])
	if err != nil {
		return s // only the rest of the line is copied
	}
	at := unended(before, streams, math.MaxInt64)
	if at == math.MaxInt64 {
		_ = before.close() // read-only
		return s
	}
	if s.opened != nil {
		_ = s.opened.close() // read-only
	}
	return start{file: s.file - 1, at: at, opened: before, from: math.MaxInt64, nextFrom: s.from}
}

// unended returns the start offset of the first line of the given streams that continues in the
// next file. It returns the given offset if no such line exists, or if the given offset is smaller.
func unended(l *logFile, streams []Stream, at int64) int64 {
	for _, stream := range streams {
		t, err := tailOf(l, 1, func(l Line) bool { return l.Stream == stream })
		if err != nil {
			continue // only the rest of the line is copied
		}
		for _, open := range t.open {
			if open.stream == stream {
				at = min(at, open.begin)
			}
		}
	}
	return at
}

// tail describes the end of a file.
type tail struct {
	lines []span // the last selected lines, oldest first
	end   int64  // end of the last complete line
	open  []span // lines that continue after the end
	other []span // for each stream, the last line that is not selected
	cut   bool   // a needed line may start before the part that was read
}

// span is the position of a line in a file, from its first to its last part.
type span struct {
	begin, end int64
	stream     Stream
	first      bool // first line of its stream; may start in the previous file
}

// streams returns the streams whose first line in the file is among the last lines, or continues in
// the next file.
func (t tail) streams() (all []Stream) {
	for _, l := range slices.Concat(t.lines, t.open) {
		if l.first {
			all = append(all, l.stream)
		}
	}
	return all
}

func (t tail) start(file int) start {
	s := start{file: file, at: t.end, from: t.end + 1}
	if len(t.lines) > 0 {
		s.from = t.lines[0].end
	}
	for _, l := range slices.Concat(t.lines, t.open) {
		s.at = min(s.at, l.begin)
	}
	for _, l := range t.other {
		if l.end > s.from { // without its start, the rest of this line would be mistaken for a line
			s.at = min(s.at, l.begin)
		}
	}
	return s
}

// tailOf finds the last n selected lines of a file, or fewer if the file has fewer. It reads a
// compressed file completely. Of an uncompressed file, it reads a part at the end, and then larger
// parts until a part contains these lines. So the cost depends on how far these lines are from the
// end, and not on the file size.
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

// scan finds the last n selected lines after an offset. If the offset is not the start of the file,
// scan skips the first line of each stream, because the line may start before the offset.
func scan(r io.Reader, from, n int64, wanted func(Line) bool) (tail, error) {
	t := tail{end: from}
	buffered := bufio.NewReader(r)
	if from > 0 {
		skipped, err := skipLine(buffered)
		if err != nil {
			return t, ignoreEOF(err) // r has only a part of one line
		}
		from += skipped
		t.end = from
	}
	split, join, whole, other := newSplitter(buffered, from), newJoiner(), map[Stream]bool{}, map[Stream]span{}
	ring, next := []span(nil), 0
	for {
		p, err := split.next()
		if err != nil {
			t.lines = slices.Concat(ring[next:], ring[:next])
			for _, part := range unfinished(split, join) {
				t.open = append(t.open, span{part.begin, part.end, part.Stream, !whole[part.Stream]})
			}
			t.other = slices.Collect(maps.Values(other))
			t.cut = from > 0 && t.wasTruncated()
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
		case !wanted(line.Line):
			other[line.Stream] = span{begin: line.begin, end: line.end, stream: line.Stream}
		case from > 0 && found.first:
			other[line.Stream] = found
		case int64(len(ring)) < n:
			ring = append(ring, found)
		case n > 0:
			ring[next] = found
			next = (next + 1) % len(ring)
		}
	}
}

// unfinished returns the incomplete lines at the end of a file.
func unfinished(split *splitter, join *joiner) (parts []joined) {
	if p, ok := split.remaining(); ok {
		if line, ok := join.add(p); ok {
			parts = append(parts, line)
		}
	}
	return append(parts, join.remaining()...)
}

// wasTruncated reports whether a needed line may start before the part that was read. A line is
// needed if it ends after the first selected line, or if it continues after the end of the file.
func (t tail) wasTruncated() bool {
	return slices.ContainsFunc(t.open, func(l span) bool { return l.first }) ||
		slices.ContainsFunc(t.other, func(l span) bool { return l.first && len(t.lines) > 0 && l.end > t.lines[0].end })
}

// skipLine reads to the end of a line and returns the number of read bytes.
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

// lineText appends a line as Copy writes it.
func lineText(to []byte, l *Line, timestamps bool) []byte {
	if timestamps {
		to = append(l.Time.AppendFormat(to, "2006-01-02T15:04:05.000000000Z07:00"), ' ')
	}
	return append(append(to, l.Text...), '\n')
}
