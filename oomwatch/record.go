package oomwatch

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Record is a record of /dev/kmsg.
type Record struct {
	// Sequence numbers the records since boot.
	Sequence uint64
	// SinceBoot is the time that the kernel gave it, by its monotonic clock.
	SinceBoot time.Duration
	// Kernel says that the kernel wrote it: facility 0. Whoever may write to
	// /dev/kmsg can't choose that one.
	Kernel bool
	// Continued says that it goes on with a line of the kernel that was begun in a
	// record before it: that was full, or another got in between.
	Continued bool
	// Text is the message, with what is not printable in it escaped as \xNN. It
	// is a part of the line that was parsed.
	Text []byte
}

var errRecord = errors.New("not a record of /dev/kmsg")

// ParseRecord parses "priority,sequence,microseconds,flags;text", as the kernel's
// Documentation/ABI/testing/dev-kmsg describes it. Fields that a newer kernel may
// add before the semicolon, and the dictionary after the first line, are skipped.
// The record shares its text with line.
func ParseRecord(line []byte) (Record, error) {
	head, text, hasText := bytes.Cut(line, []byte(";"))
	fields := strings.Split(string(head), ",")
	var numbers [3]uint64
	for i, name := range []string{"priority", "sequence", "time"} {
		var err error
		if i+1 < len(fields) {
			numbers[i], err = strconv.ParseUint(fields[i], 10, 64)
		}
		if err != nil || i+1 >= len(fields) {
			return Record{}, fmt.Errorf("%w: no %s in %.40q", errRecord, name, line)
		}
	}
	if !hasText {
		return Record{}, fmt.Errorf("%w: no text in %.40q", errRecord, line)
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	const facilityShift = 3
	return Record{
		Sequence: numbers[1], SinceBoot: time.Duration(numbers[2]) * time.Microsecond,
		Kernel: numbers[0]>>facilityShift == 0, Continued: strings.HasPrefix(fields[3], "c"), Text: text,
	}, nil
}
