package oomwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Position is how far a kernel's log has been read. The zero value means that nothing has
// been read.
type Position struct {
	// BootID identifies the boot that Sequence belongs to.
	BootID string
	// Sequence is the last record that need not be read again.
	Sequence uint64
	// HandledUpTo is the last record of the kills that were handled, if it is after Sequence:
	// these records are read again because of an earlier kill that was not handled.
	HandledUpTo uint64 `json:"ToldUpTo,omitzero"`
}

// KmsgLog is an open /dev/kmsg. Each Read waits for a record and returns it. Read returns
// EPIPE once if records were overwritten before they were read, and
// os.ErrDeadlineExceeded after the deadline. *os.File implements it.
type KmsgLog interface {
	io.ReadSeekCloser
	SetReadDeadline(time.Time) error
}

// KmsgConfig configures a [Kmsg]. The zero value reads the log of this machine.
type KmsgConfig struct {
	// Hold is how long a kill waits for others of its group, and for missing lines.
	// Default 100 ms.
	Hold time.Duration
	// Open opens the log. Default: /dev/kmsg, on Linux.
	Open func() (KmsgLog, error)
	// BootID returns the ID of this boot. Default: the kernel's
	// /proc/sys/kernel/random/boot_id.
	BootID func() (string, error)
	// Clock is the time of day. Default the system clock.
	Clock clock.PassiveClock
	// Monotonic returns the time of the clock of the log's records. Default
	// CLOCK_MONOTONIC, which like the kernel's printk clock stops while the machine is
	// suspended.
	Monotonic func() time.Duration
	// NoVictim is called for a dump without a kill: the kernel found no process to
	// kill, or the chosen process was already exiting. Optional.
	NoVictim func()
}

// Kmsg is the source that reads the kernel's log. It needs the permission to read
// /dev/kmsg: CAP_SYSLOG if kernel.dmesg_restrict is set, and the device if it runs in a
// container.
type Kmsg struct {
	cfg KmsgConfig

	// Used by Watch only. It continues with them after the log was opened again.
	log      KmsgLog
	emit     func(Observation)
	parser   Parser
	last     uint64        // last record that was read
	lost     uint64        // overwritten records that were not emitted yet
	timedOut bool          // the deadline has passed once; available records are still read
	drift    time.Duration // maximum by which the log's clock is behind
	driftAt  time.Duration
	buf      [recordSize]byte

	mu       sync.Mutex
	position Position
}

var _ Source = (*Kmsg)(nil)

const (
	// recordSize is larger than any record, which has at most 8 KiB with all escapes. For a
	// smaller buffer, the kernel returns EINVAL.
	recordSize = 16 << 10
	// confirmTimeout is how long reading continues after a deadline: the deadline may
	// have passed because this process was delayed, and not because there are no more
	// records.
	confirmTimeout = 20 * time.Millisecond
	// deathTimeout is how long the choice of a victim waits for the line about its death.
	// The kernel may write to a slow console in between.
	deathTimeout = 5 * time.Second
	// historyQuiet is how long no record must come to find the end of the log, which can
	// only be found by reading. historyTimeout limits the search.
	historyQuiet   = 20 * time.Millisecond
	historyTimeout = time.Second
	// maxDriftRate is the maximum drift of clocks, one in so many: the kernel does not
	// let a time server correct more.
	maxDriftRate = 2000
)

// NewKmsg returns the source. It opens nothing yet.
func NewKmsg(cfg KmsgConfig) (*Kmsg, error) {
	if cfg.Hold < 0 {
		return nil, fmt.Errorf("oomwatch: invalid config of kmsg: field Hold: %s is negative", cfg.Hold)
	}
	if cfg.Hold == 0 {
		cfg.Hold = 100 * time.Millisecond
	}
	if cfg.Open == nil {
		cfg.Open = openKmsg
	}
	if cfg.BootID == nil {
		cfg.BootID = bootID
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Monotonic == nil {
		cfg.Monotonic = monotonic
	}
	if cfg.NoVictim == nil {
		cfg.NoVictim = func() {}
	}
	return &Kmsg{cfg: cfg, drift: math.MaxInt64 / 2}, nil
}

// Name returns "kmsg".
func (k *Kmsg) Name() string { return "kmsg" }

// Position returns how far the log has been read and its kills emitted. They need not
// have been handled: save [Watcher.Position] to resume.
func (k *Kmsg) Position() Position {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.position
}

// publish updates the position to the last record up to which all kills are complete.
func (k *Kmsg) publish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position.Sequence = k.last
	if k.parser.Open() {
		k.position.Sequence = k.parser.idle
	}
}

// Watch reads until ctx is done, and then returns nil, or until reading fails. When it
// has returned it may be called again and continues where it stopped; the first call
// starts at from. It must not be called concurrently.
func (k *Kmsg) Watch(ctx context.Context, from Position, emit func(Observation)) error {
	k.resume(from)
	log, err := k.cfg.Open()
	if err != nil {
		return fmt.Errorf("open the kernel's log: %w", err)
	}
	closeLog := sync.OnceFunc(func() { _ = log.Close() }) // an error does not matter: the log was only read
	defer closeLog()
	defer context.AfterFunc(ctx, closeLog)()
	k.log, k.emit = log, emit
	boot, err := k.cfg.BootID()
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	err = k.read(boot)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read the kernel's log: %w", err)
}

// resume sets the position for the first read. It does nothing after that.
func (k *Kmsg) resume(from Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.position == (Position{}) {
		k.position, k.last = from, from.Sequence
	}
}

// read reads records until reading fails.
func (k *Kmsg) read(boot string) error {
	if _, err := k.log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if k.Position().BootID != boot {
		if err := k.skipHistory(boot); err != nil {
			return err
		}
	}
	k.emit(Observation{})
	err := k.setDeadline()
	for err == nil {
		var record Record
		record, err = k.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = k.handleTimeout()
		case err == nil:
			err = k.process(record)
		}
	}
	return err
}

// skipHistory skips all records from before the start and stores the end of the log as the
// position, so that a later start can resume there even if nothing is logged until then.
func (k *Kmsg) skipHistory(boot string) error {
	k.last = 0
	for began := k.cfg.Clock.Now(); k.cfg.Clock.Since(began) <= historyTimeout; {
		if err := k.log.SetReadDeadline(k.cfg.Clock.Now().Add(historyQuiet)); err != nil {
			return err
		}
		record, err := k.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		k.last = record.Sequence
	}
	k.lost = 0 // records from before the start don't count as lost
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position = Position{BootID: boot, Sequence: k.last}
	return nil
}

// next returns the next record that was not read before. Damaged records are skipped.
func (k *Kmsg) next() (Record, error) {
	for {
		n, err := k.log.Read(k.buf[:])
		if errors.Is(err, syscall.EPIPE) {
			continue // the sequence of the next record shows how many are missing
		}
		if err != nil {
			return Record{}, err
		}
		record, err := ParseRecord(k.buf[:n])
		if err != nil || k.last > 0 && record.Sequence <= k.last {
			continue
		}
		if k.last > 0 {
			k.lost += record.Sequence - k.last - 1
		}
		return record, nil
	}
}

// process processes one record of the log.
func (k *Kmsg) process(record Record) error {
	k.last = record.Sequence
	if k.lost > 0 {
		k.emit(Observation{LostRecords: k.lost})
		k.lost = 0
	}
	before := k.parser.used
	k.feed(func() []Kill {
		if kill, ok := k.parser.Feed(record, k.wallTime(record)); ok {
			return []Kill{kill}
		}
		return nil
	})
	if k.parser.used > before {
		return k.setDeadline()
	}
	return nil
}

// feed emits the kills that a step of the parser returns, without those that were handled
// before the start, and updates the position.
func (k *Kmsg) feed(step func() []Kill) {
	before := k.parser.NoVictim
	for _, kill := range step() {
		if kill.end > k.position.HandledUpTo {
			k.emit(Observation{Kill: kill})
		}
	}
	for range k.parser.NoVictim - before {
		k.cfg.NoVictim()
	}
	k.publish()
}

// setDeadline sets the deadline for further records of what has begun.
func (k *Kmsg) setDeadline() error {
	k.timedOut = false
	switch {
	case k.parser.last != nil:
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(k.cfg.Hold))
	case k.parser.Open():
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(deathTimeout))
	default:
		return k.log.SetReadDeadline(time.Time{})
	}
}

// handleTimeout handles a deadline that has passed.
func (k *Kmsg) handleTimeout() error {
	if !k.timedOut {
		k.timedOut = true
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(confirmTimeout))
	}
	k.feed(func() []Kill {
		if kill, ok := k.parser.FlushLast(); ok {
			return []Kill{kill}
		}
		return k.parser.Flush()
	})
	return k.setDeadline()
}

// wallTime converts a record's time to the time of day. Time servers correct the monotonic
// clock, but not the clock of the log, which drifts. The smallest age of any record so
// far is that of a record that was read as soon as it was written. This age is the drift,
// unless it exceeds the possible maximum. The drift may have grown since.
func (k *Kmsg) wallTime(record Record) time.Time {
	now := k.cfg.Monotonic()
	age := now - record.SinceBoot
	k.drift, k.driftAt = min(k.drift+(now-k.driftAt)/maxDriftRate, age), now
	if k.drift.Abs() <= now/maxDriftRate {
		age -= k.drift
	}
	return k.cfg.Clock.Now().Add(-age)
}
