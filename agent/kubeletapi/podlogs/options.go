package podlogs

import (
	"errors"
	"time"
)

// Source is the location of a container's log.
type Source struct {
	// Root is the directory of all logs. Dir is the path of the container's directory relative
	// to Root, such as NAMESPACE_NAME_UID/CONTAINER. Nothing outside Root is read.
	Root, Dir string
	// Attempt is the number of the container's instance; the first instance has 0. With Follow,
	// Copy continues with the logs of later instances.
	Attempt uint32
	// Ended reports whether the runtime has stopped writing to the log. Copy only calls it with
	// Follow. If Ended is nil, the log never ends.
	Ended func() bool
}

// Options select a part of a log. The zero value selects all lines that exist now.
type Options struct {
	// Follow selects later lines, too, until the source has ended.
	Follow bool
	// TailLines selects this number of last lines among the existing lines. Nil means all
	// lines.
	TailLines *int64
	// Since skips lines that the runtime wrote before this time.
	Since time.Time
	// Timestamps writes the time of each line in front of the line.
	Timestamps bool
	// LimitBytes is the maximum number of bytes to write. 0 means no limit.
	LimitBytes int64
	// Stream selects one of the container's streams. Default: both.
	Stream Stream
}

// Stream is an output stream of a container.
type Stream string

// The streams.
const (
	All    Stream = ""
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// ErrNoLog is returned if the log of this instance of the container does not exist. Either the
// runtime has not written the log yet, or the log was deleted.
var ErrNoLog = errors.New("the log does not exist: it was not written yet, or it was deleted")
