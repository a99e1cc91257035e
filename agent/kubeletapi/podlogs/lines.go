package podlogs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLineBytes is the maximum size of a line in memory. Longer lines are split.
const maxLineBytes = 1 << 20

// piece is a line of a file, or a part of a line that is longer than maxLineBytes.
type piece struct {
	data        []byte // valid until the next piece; the last piece of a complete line includes the newline
	begin, end  int64  // offsets in the uncompressed file
	first, last bool   // whether this is the first or the last piece of its line
}

// splitter reads a file line by line. After io.EOF, the caller can continue when the file has
// grown.
type splitter struct {
	reader  *bufio.Reader
	at      int64  // offset of the next piece
	pending []byte // start of an incomplete line
	inside  bool   // next() has already returned a piece of the current line
}

func newSplitter(r io.Reader, at int64) *splitter {
	return &splitter{reader: bufio.NewReaderSize(r, 64<<10), at: at}
}

// next returns the next line that ends with a newline, or a piece of a line that is too long. It
// returns io.EOF if the rest of the file is empty or an incomplete line.
func (s *splitter) next() (piece, error) {
	for {
		data, err := s.reader.ReadSlice('\n')
		if err != nil || len(s.pending) > 0 {
			s.pending = append(s.pending, data...)
			data = s.pending
		}
		switch {
		case err == nil:
			return s.nextPiece(data, true), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return piece{}, err
		case len(data) >= maxLineBytes:
			return s.nextPiece(data, false), nil
		}
	}
}

// remaining returns the data after the last newline. It returns false if there is no such data.
func (s *splitter) remaining() (piece, bool) {
	if len(s.pending) == 0 {
		return piece{}, false
	}
	return s.nextPiece(s.pending, true), true
}

func (s *splitter) nextPiece(data []byte, last bool) piece {
	p := piece{data: data, begin: s.at, end: s.at + int64(len(data)), first: !s.inside, last: last}
	s.at, s.inside = p.end, !last
	s.pending = s.pending[:0]
	return p
}

// joined is a line that a container has written, joined from its parts.
type joined struct {
	Line
	begin, end int64 // offsets of the start of the first part and the end of the last part
}

// joiner joins the parts of lines, separately for each stream.
type joiner struct {
	open map[Stream]*joined // incomplete lines
	// The log line to which the next piece belongs, and whether this line is valid.
	inside Line
	known  bool
}

func newJoiner() *joiner { return &joiner{open: map[Stream]*joined{}} }

// add adds a piece of a file. If the piece completes a line, or the line has reached
// maxLineBytes, add returns the line and true. The text of the line is valid until the next
// call.
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

// remaining returns and forgets the incomplete lines, for a log that has ended.
func (j *joiner) remaining() (lines []joined) {
	for _, s := range []Stream{Stdout, Stderr} {
		if part := j.open[s]; part != nil {
			lines = append(lines, *part)
			delete(j.open, s)
		}
	}
	return lines
}
