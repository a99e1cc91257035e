package podlogs

import (
	"errors"
	"time"
)

// Source is the place of a container's log.
type Source struct {
	// Root is the directory of all logs, and Dir that of the container below it, such as
	// NAMESPACE_NAME_UID/CONTAINER. Nothing outside Root is read.
	Root, Dir string
	// Attempt is the number of the container's instance, from 0. With Follow the logs of
	// later instances come after it.
	Attempt uint32
	// Ended reports that nothing is written any more. Nil: the log never ends.
	Ended func() bool
}

// Options select a part of a log. The zero value selects all that is written now.
type Options struct {
	// Follow continues with what is written later, until the source has ended.
	Follow bool
	// TailLines is the number of last lines with which to begin. Nil: all.
	TailLines *int64
	// Since leaves out lines that were written before it.
	Since time.Time
	// Timestamps begins each line with its time.
	Timestamps bool
	// LimitBytes ends the output after this number of bytes. 0: no limit.
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

// ErrNoLog is returned if the log of that instance of the container does not exist: it was not
// written yet, or it was deleted.
var ErrNoLog = errors.New("there is no log of it")
