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
	// Sequence is the record's number since boot.
	Sequence uint64
	// SinceBoot is the record's time by the clock of the log, which drifts from the
	// monotonic clock.
	SinceBoot time.Duration
	// Kernel reports whether the kernel wrote the record: the facility is 0, which
	// programs that write to /dev/kmsg cannot use.
	Kernel bool
	// Continued reports whether the record continues a line of the kernel from an earlier
	// record, because the earlier record was full or another record was written in
	// between.
	Continued bool
	// Text is the message, with unprintable bytes escaped as \xNN. It shares memory with
	// the parsed line.
	Text []byte
}

var errRecord = errors.New("not a record of /dev/kmsg")

// ParseRecord parses "priority,sequence,microseconds,flags;text", as described in the
// kernel's Documentation/ABI/testing/dev-kmsg. Fields that a newer kernel may add before
// the semicolon, and the dictionary after the first line, are skipped. The record's text
// shares memory with line.
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
