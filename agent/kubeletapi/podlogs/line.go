package podlogs

import (
	"bytes"
	"errors"
	"time"
)

// errNoLine is returned for data that is not a line of a container's log.
var errNoLine = errors.New("not a line of a container's log")

// Line is a line of a log, or a part of a line that the runtime has split.
type Line struct {
	// Time is when the runtime wrote the line.
	Time time.Time
	// Stream is Stdout or Stderr.
	Stream Stream
	// Partial reports whether the text continues in the next line of the same stream.
	Partial bool
	// Text is the text of the container without the newline. It shares memory with the
	// argument of ParseLine.
	Text []byte
}

// ParseLine parses a line such as
//
//	2006-01-02T15:04:05.000000000Z stdout F text
//
// with or without a newline. Tags after the first tag are ignored, as in the kubelet. Text
// shares memory with line.
func ParseLine(line []byte) (Line, error) {
	stamp, rest, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !ok {
		return Line{}, errNoLine
	}
	var l Line
	if err := l.Time.UnmarshalText(stamp); err != nil { // unlike time.Parse, this allocates nothing
		return Line{}, errNoLine
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	switch {
	case ok && string(stream) == string(Stdout):
		l.Stream = Stdout
	case ok && string(stream) == string(Stderr):
		l.Stream = Stderr
	default:
		return Line{}, errNoLine
	}
	tags, text, ok := bytes.Cut(rest, []byte(" "))
	if !ok { // containerd ends an empty line without a space
		text = nil
	}
	switch tag, _, _ := bytes.Cut(tags, []byte(":")); string(tag) {
	case "F":
	case "P":
		l.Partial = true
	default:
		return Line{}, errNoLine
	}
	l.Text = text
	return l, nil
}
