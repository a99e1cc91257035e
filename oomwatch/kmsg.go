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

// Position is a position in a kernel's log. The zero value means that nothing has been
// read.
type Position struct {
	// BootID identifies the boot that Sequence belongs to.
	BootID string
	// Sequence is the sequence number of the last record that need not be read again.
	Sequence uint64
	// HandledUpTo is set if kills after Sequence were handled, although an earlier kill
	// was not. It is the sequence number of the last record of the handled kills. After a
	// restart, Kmsg reads the records after Sequence again, but does not emit kills that
	// end at HandledUpTo or before.
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
	// Hold is how long Kmsg holds a kill because more kills of its group may follow.
	// Default 100 ms.
	Hold time.Duration
	// Open opens the log. Default: /dev/kmsg, on Linux.
	Open func() (KmsgLog, error)
	// BootID returns the ID of this boot. Default: the kernel's
	// /proc/sys/kernel/random/boot_id.
	BootID func() (string, error)
	// Clock is the time of day. Default the system clock.
	Clock clock.PassiveClock
	// Monotonic returns the present time by the clock of the log's records. Default
	// CLOCK_MONOTONIC, which like the kernel's printk clock stops while the machine is
	// suspended.
	Monotonic func() time.Duration
	// NoVictim is called for a dump without a kill: the kernel found no process to
	// kill, or the chosen process was already exiting. Optional.
	NoVictim func()
}

// Kmsg is the source that reads the kernel's log. It needs the permission to read
// /dev/kmsg: CAP_SYSLOG if kernel.dmesg_restrict is set, and access to the device if the
// process runs in a container.
type Kmsg struct {
	cfg KmsgConfig

	// The fields down to mu are used by Watch only, and keep their values when Watch is
	// called again.
	log      KmsgLog
	emit     func(Observation)
	parser   Parser
	last     uint64        // sequence number of the last record that was read
	lost     uint64        // number of overwritten records that were not passed to emit yet
	timedOut bool          // the deadline has passed once; available records are still read
	drift    time.Duration // upper limit of the time by which the log's clock is behind
	driftAt  time.Duration
	buf      [recordSize]byte

	mu       sync.Mutex
	position Position
}

var _ Source = (*Kmsg)(nil)

const (
	// recordSize is larger than any record, which has at most 8 KiB with all escapes. If
	// the buffer is too small for a record, the kernel returns EINVAL.
	recordSize = 16 << 10
	// confirmTimeout is how long reading continues after a deadline: the deadline may have
	// passed because this process was delayed, although more records are available.
	confirmTimeout = 20 * time.Millisecond
	// deathTimeout is how long Kmsg waits for the line about a death after the line about
	// the choice of the victim. Between these lines, the kernel may write to a slow
	// console.
	deathTimeout = 5 * time.Second
	// historyQuiet is the time without a record after which Kmsg assumes that it has
	// reached the end of the log: only reading shows which record is the last.
	// historyTimeout limits the search for the end.
	historyQuiet   = 20 * time.Millisecond
	historyTimeout = time.Second
	// maxDriftRate is the inverse of the maximum drift of a clock: the kernel lets a time
	// server correct a clock by at most 1/2000.
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

// Position returns the position in the log up to which all kills were emitted. These kills
// may not have been handled yet: to resume, save [Watcher.Position].
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

// Watch reads the log. It returns nil when ctx is done, and the error when reading fails.
// The first call starts at the given Position, or at the end of the log if the Position is
// zero or from another boot. Each later call continues where the previous call stopped. Watch
// must not be called concurrently.
func (k *Kmsg) Watch(ctx context.Context, from Position, emit func(Observation)) error {
	k.resume(from)
	log, err := k.cfg.Open()
	if err != nil {
		return fmt.Errorf("open the kernel's log: %w", err)
	}
	closeLog := sync.OnceFunc(func() { _ = log.Close() }) // ignore the error: the log was only read
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

// resume sets the position for the first read. Later calls do nothing.
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

// skipHistory skips all existing records and stores the end of the log as the position, so
// that another process can resume there even if nothing is logged until then.
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
	k.lost = 0 // skipped records do not count as lost
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

// feed runs a step of the parser, emits the kills that the step returns, except kills that
// an earlier process has handled, and updates the position.
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

// setDeadline sets the deadline for the next record: Hold if more kills of a group may
// follow, deathTimeout if a kill is incomplete, and otherwise none.
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

// handleTimeout handles a deadline that has passed. At first, it only sets a second
// deadline, after confirmTimeout. When the second deadline has passed, it emits the last
// kill or, if there is no last kill, the incomplete kills that [Parser.Flush] returns.
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
// clock, but not the clock of the log, which drifts. The record with the smallest age so
// far was probably read as soon as it was written, so its age is the drift of the log's
// clock at that time. This age, plus the most that the clock can have drifted since, is the
// upper limit of the drift. The limit is not used if it exceeds the maximum drift since
// boot.
func (k *Kmsg) wallTime(record Record) time.Time {
	now := k.cfg.Monotonic()
	age := now - record.SinceBoot
	k.drift, k.driftAt = min(k.drift+(now-k.driftAt)/maxDriftRate, age), now
	if k.drift.Abs() <= now/maxDriftRate {
		age -= k.drift
	}
	return k.cfg.Clock.Now().Add(-age)
}
