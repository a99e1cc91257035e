package prober

import (
	"strings"
	"time"
	"unicode/utf8"
)

// history holds the last records of a probe. It is made at the first one, and
// compact, because there may be a hundred thousand.
type history struct {
	entries []entry // a ring; next is the oldest once it is full
	next    int
}

// entry is a Record in 24 bytes.
type entry struct {
	at      int64   // nanoseconds since the Manager's start
	output  *string // nil is empty; equal outputs in a row are one string
	took    uint32  // microseconds
	outcome Outcome
}

// add notes a record in a ring of the given size.
func (h *history) add(size int, e entry, output string) {
	if last := h.last(); last != nil && last.output != nil && *last.output == output {
		e.output = last.output
	} else if output != "" {
		kept := strings.Clone(output)
		e.output = &kept
	}
	if len(h.entries) < size {
		if h.entries == nil {
			h.entries = make([]entry, 0, size)
		}
		h.entries = append(h.entries, e)
		return
	}
	h.entries[h.next] = e
	h.next = (h.next + 1) % size
}

// cut returns at most the first limit bytes of s, and no half rune.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// newEntry returns an entry without output.
func newEntry(at int64, took time.Duration, outcome Outcome) entry {
	return entry{at: at, took: uint32(min(max(took.Microseconds(), 0), 1<<32-1)), outcome: outcome}
}

// last returns the newest entry, or nil.
func (h *history) last() *entry {
	n := len(h.entries)
	if n == 0 {
		return nil
	}
	return &h.entries[(h.next+n-1)%n]
}

// records returns all, oldest first.
func (h *history) records(start time.Time) []Record {
	all := make([]Record, 0, len(h.entries))
	for i := range h.entries {
		e := h.entries[(h.next+i)%len(h.entries)]
		r := Record{
			At: start.Add(time.Duration(e.at)), Outcome: e.outcome,
			Duration: time.Duration(e.took) * time.Microsecond,
		}
		if e.output != nil {
			r.Output = *e.output
		}
		all = append(all, r)
	}
	return all
}
