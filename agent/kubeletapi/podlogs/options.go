package podlogs

import (
	"errors"
	"time"
)

// Source is the location of a container's log.
type Source struct {
	// Root is the directory of all logs, and Dir the container's directory below it, such as
	// NAMESPACE_NAME_UID/CONTAINER. Nothing outside Root is read.
	Root, Dir string
	// Attempt is the number of the container's instance, from 0. With Follow, the logs of later
	// instances follow.
	Attempt uint32
	// Ended reports whether nothing more is written to the log. Nil means that the log never
	// ends.
	Ended func() bool
}

// Options select a part of a log. The zero value selects all lines that exist now.
type Options struct {
	// Follow continues with later lines, until the source has ended.
	Follow bool
	// TailLines is the number of existing lines to start with. Nil means all lines.
	TailLines *int64
	// Since skips lines that were written before this time.
	Since time.Time
	// Timestamps starts each line with its time.
	Timestamps bool
	// LimitBytes ends the output after this number of bytes. 0 means no limit.
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

// ErrNoLog is returned if the log of this instance of the container does not exist: it was not
// written yet, or it was deleted.
var ErrNoLog = errors.New("the log does not exist: it was not written yet, or it was deleted")
