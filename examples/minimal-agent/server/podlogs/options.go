package podlogs

import (
	"errors"
	"time"
)

// Source is where the log of a container is.
type Source struct {
	// Root is the folder of all logs, and Dir that of the container below it, such as
	// NAMESPACE_NAME_UID/CONTAINER. Nothing outside Root is read, whatever links lead
	// there.
	Root, Dir string
	// Attempt is the instance of the container whose log it is, from 0. Whoever follows
	// gets those of later ones, too.
	Attempt uint32
	// Ended says that nothing is written any more. Nil: that it never ends.
	Ended func() bool
}

// Options say what of a log is wanted. The zero value wants all that there is now.
type Options struct {
	// Follow goes on with what is written, until the source has ended.
	Follow bool
	// TailLines is how many of the last lines are wanted at first. Nil: all.
	TailLines *int64
	// Since leaves out what was written before.
	Since time.Time
	// Timestamps begins each line with its time.
	Timestamps bool
	// LimitBytes ends the output after so many. 0: no limit.
	LimitBytes int64
	// Stream is one of the container's two. Default: both.
	Stream Stream
}

// Stream is what a container writes to.
type Stream string

// The streams.
const (
	All    Stream = ""
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// ErrNoLog says that there is no log of that instance of the container: it has written
// none yet, or it was removed.
var ErrNoLog = errors.New("there is no log of it")
