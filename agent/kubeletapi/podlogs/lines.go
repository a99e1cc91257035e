package podlogs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLineBytes is how much of a line is kept in memory: what is longer comes in pieces.
const maxLineBytes = 1 << 20

// piece is a line of a file, or a part of one that is too long.
type piece struct {
	data        []byte // valid until the next one; with its newline, if it is the last one
	begin, end  int64  // where it is in the file, uncompressed
	first, last bool   // of its line
}

// splitter reads a file line by line. It can go on when the file has grown.
type splitter struct {
	reader  *bufio.Reader
	at      int64  // where the next piece begins
	pending []byte // of a line that is not whole yet
	inside  bool   // a piece of the line was returned already
}

func newSplitter(r io.Reader, at int64) *splitter {
	return &splitter{reader: bufio.NewReaderSize(r, 64<<10), at: at}
}

// next returns the next line that ends with a newline, or io.EOF when there is none
// yet.
func (s *splitter) next() (piece, error) {
	for {
		data, err := s.reader.ReadSlice('\n')
		if err != nil || len(s.pending) > 0 {
			s.pending = append(s.pending, data...)
			data = s.pending
		}
		switch {
		case err == nil:
			return s.take(data, true), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return piece{}, err
		case len(data) >= maxLineBytes:
			return s.take(data, false), nil
		}
	}
}

// rest returns what is left of a file that has no newline at its end.
func (s *splitter) rest() (piece, bool) {
	if len(s.pending) == 0 {
		return piece{}, false
	}
	return s.take(s.pending, true), true
}

func (s *splitter) take(data []byte, last bool) piece {
	p := piece{data: data, begin: s.at, end: s.at + int64(len(data)), first: !s.inside, last: last}
	s.at, s.inside = p.end, !last
	s.pending = s.pending[:0]
	return p
}

// joined is a line of a container, put together.
type joined struct {
	Line
	begin, end int64 // of its first part, and of its last one
}

// joiner puts the parts of lines together, by stream.
type joiner struct {
	open map[Stream]*joined // what is not whole yet
	// inside is the line of whose pieces the next is one, if it is a line of a log.
	inside Line
	known  bool
}

func newJoiner() *joiner { return &joiner{open: map[Stream]*joined{}} }

// add takes a piece of a file and returns the line that it makes whole, if it does.
// Its text is valid until the next call.
func (j *joiner) add(p piece) (joined, bool) {
	if p.first {
		l, err := ParseLine(p.data)
		if j.known = err == nil; !j.known {
			return joined{}, false
		}
		if j.open[l.Stream] == nil && p.last && !l.Partial {
			return joined{Line: l, begin: p.begin, end: p.end}, true
		}
		j.inside = l
	} else {
		j.inside.Text = bytes.TrimSuffix(p.data, []byte("\n"))
	}
	if !j.known {
		return joined{}, false
	}
	l := j.inside
	part := j.open[l.Stream]
	if part == nil {
		part = &joined{Line: Line{Time: l.Time, Stream: l.Stream}, begin: p.begin}
		j.open[l.Stream] = part
	}
	part.Text, part.end = append(part.Text, l.Text...), p.end
	if !p.last || l.Partial {
		if len(part.Text) < maxLineBytes {
			return joined{}, false
		}
	}
	delete(j.open, l.Stream)
	return *part, true
}

// rest returns what is there of lines that will never be whole.
func (j *joiner) rest() (lines []joined) {
	for _, s := range []Stream{Stdout, Stderr} {
		if part := j.open[s]; part != nil {
			lines = append(lines, *part)
			delete(j.open, s)
		}
	}
	return lines
}
