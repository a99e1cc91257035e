package oomwatch

import (
	"bytes"
	"errors"
	"fmt"
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
	var r Record
	priority, rest, ok := number(line)
	if !ok {
		return r, fmt.Errorf("%w: no priority in %.40q", errRecord, line)
	}
	if r.Sequence, rest, ok = number(rest); !ok {
		return r, fmt.Errorf("%w: no sequence in %.40q", errRecord, line)
	}
	microseconds, rest, ok := number(rest)
	if !ok {
		return r, fmt.Errorf("%w: no time in %.40q", errRecord, line)
	}
	semicolon := bytes.IndexByte(rest, ';')
	if semicolon < 0 {
		return r, fmt.Errorf("%w: no text in %.40q", errRecord, line)
	}
	r.Continued = semicolon > 0 && rest[0] == 'c'
	text := rest[semicolon+1:]
	if newline := bytes.IndexByte(text, '\n'); newline >= 0 {
		text = text[:newline]
	}
	const facilityShift = 3
	r.SinceBoot = time.Duration(microseconds) * time.Microsecond
	r.Kernel = priority>>facilityShift == 0
	r.Text = text
	return r, nil
}

// number cuts a decimal number and the comma after it off b.
func number(b []byte) (n uint64, rest []byte, ok bool) {
	const most = 19 // digits that fit
	i := 0
	for ; i < len(b) && i < most; i++ {
		digit := b[i] - '0'
		if digit > 9 {
			break
		}
		n = 10*n + uint64(digit)
	}
	if i == 0 || i == len(b) || b[i] != ',' {
		return 0, nil, false
	}
	return n, b[i+1:], true
}
