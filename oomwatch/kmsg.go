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

// Position is how far a kernel's log has been read. The zero value is nowhere.
type Position struct {
	// BootID is the boot that the sequence belongs to.
	BootID string
	// Sequence is the last record that need not be read again.
	Sequence uint64
	// Told is the last record of the kills that were handled, if it is after Sequence:
	// because of one that was not, they are read again.
	Told uint64 `json:"ToldUpTo,omitzero"`
}

// KmsgLog is an open /dev/kmsg: each Read returns one record, after waiting for it,
// EPIPE once where records were overwritten unread, and os.ErrDeadlineExceeded past
// the deadline. *os.File is one.
type KmsgLog interface {
	io.ReadSeekCloser
	SetReadDeadline(time.Time) error
}

// KmsgConfig configures a [Kmsg]. The zero value reads the machine's own log.
type KmsgConfig struct {
	// Hold is how long a kill waits for others of its group, and for lines that
	// were to follow. Default 100 ms.
	Hold time.Duration
	// Open opens the log. Default: /dev/kmsg, on Linux.
	Open func() (KmsgLog, error)
	// BootID says which boot this is. Default: the kernel's
	// /proc/sys/kernel/random/boot_id.
	BootID func() (string, error)
	// Clock is the time of day. Default the system clock.
	Clock clock.PassiveClock
	// Monotonic is the clock of the log's records. Default CLOCK_MONOTONIC, which
	// like the kernel's printk stands still while the machine is suspended.
	Monotonic func() time.Duration
	// NobodyKilled is called when the kernel found nobody to kill, or had chosen a
	// process that was ending by itself. Optional.
	NobodyKilled func()
}

// Kmsg is the source that reads the kernel's log. It needs the right to read
// /dev/kmsg: with kernel.dmesg_restrict that is CAP_SYSLOG, and in a container the
// device.
type Kmsg struct {
	cfg KmsgConfig

	// For Watch only, which goes on with them when the log had to be opened again.
	log     KmsgLog
	emit    func(Sighting)
	parser  Parser
	last    uint64        // the last record that was read
	lost    uint64        // records that were overwritten, of which no sighting has told
	quiet   bool          // the deadline is over; what is there already is still read
	drift   time.Duration // how far the log's clock is behind at most
	driftAt time.Duration
	buf     [recordSize]byte

	mu       sync.Mutex
	position Position
}

var _ Source = (*Kmsg)(nil)

const (
	// recordSize is more than any record. The kernel refuses with EINVAL to cut one; it
	// has at most 8 KiB with all escapes.
	recordSize = 16 << 10
	// confirm is how long a log that seems to be quiet has to show that it is not: it
	// may be the reader that was held up.
	confirm = 20 * time.Millisecond
	// patience is how long a choice waits for its death, between which the kernel may
	// be writing to a slow console.
	patience = 5 * time.Second
	// historyQuiet is how long nothing comes where the log ends, which can only be learned
	// by reading it, and historyLongest for how long that is tried if it is never quiet.
	historyQuiet   = 20 * time.Millisecond
	historyLongest = time.Second
	// mostDrift is how fast clocks drift at most, one in so many: more the kernel lets no
	// time server correct.
	mostDrift = 2000
)

// NewKmsg returns the source. It opens nothing yet.
func NewKmsg(cfg KmsgConfig) (*Kmsg, error) {
	if cfg.Hold < 0 {
		return nil, fmt.Errorf("oomwatch: invalid config of kmsg: field Hold %s: want none or a positive one", cfg.Hold)
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
	if cfg.NobodyKilled == nil {
		cfg.NobodyKilled = func() {}
	}
	return &Kmsg{cfg: cfg, drift: math.MaxInt64 / 2}, nil
}

// Name returns "kmsg".
func (k *Kmsg) Name() string { return "kmsg" }

// Position is how far the log has been read and its kills emitted. Those need not
// have been handled: what to save for a resumption is [Watcher.Position].
func (k *Kmsg) Position() Position {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.position
}

// publish makes known how far the log has been read: as far as all that had begun has ended.
func (k *Kmsg) publish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position.Sequence = k.last
	if k.parser.Open() {
		k.position.Sequence = k.parser.idle
	}
}

// Watch reads until ctx is done, and then returns nil, or until reading fails. It may
// be called again when it has returned, by one goroutine at a time, and goes on where
// it was, the first time at from.
func (k *Kmsg) Watch(ctx context.Context, from Position, emit func(Sighting)) error {
	k.resume(from)
	log, err := k.cfg.Open()
	if err != nil {
		return fmt.Errorf("open the kernel's log: %w", err)
	}
	closeLog := sync.OnceFunc(func() { _ = log.Close() }) // it was only read
	defer closeLog()
	defer context.AfterFunc(ctx, closeLog)()
	k.log, k.emit = log, emit
	boot, err := k.cfg.BootID()
	if err != nil {
		return fmt.Errorf("find the place in the kernel's log: %w", err)
	}
	err = k.read(boot)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read the kernel's log: %w", err)
}

// resume has reading begin at a position, unless it has begun.
func (k *Kmsg) resume(from Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.position == (Position{}) {
		k.position, k.last = from, from.Sequence
	}
}

// read reads until that fails for good.
func (k *Kmsg) read(boot string) error {
	if _, err := k.log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if k.Position().BootID != boot {
		if err := k.history(boot); err != nil {
			return err
		}
	}
	k.emit(Sighting{})
	err := k.wait()
	for err == nil {
		var record Record
		record, err = k.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = k.late()
		case err == nil:
			err = k.take(record)
		}
	}
	return err
}

// history skips all that was logged before the start and notes where it ends, so that
// a later start can resume there even if nothing is logged until then.
func (k *Kmsg) history(boot string) error {
	k.last = 0
	for began := k.cfg.Clock.Now(); k.cfg.Clock.Since(began) <= historyLongest; {
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
	k.lost = 0 // nobody was to read it
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position = Position{BootID: boot, Sequence: k.last}
	return nil
}

// next returns the next record that was not read before. One that is damaged is
// skipped.
func (k *Kmsg) next() (Record, error) {
	for {
		n, err := k.log.Read(k.buf[:])
		if errors.Is(err, syscall.EPIPE) {
			continue // the sequence of the next record tells how many are missing
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

// take takes one record of the log.
func (k *Kmsg) take(record Record) error {
	k.last = record.Sequence
	if k.lost > 0 {
		k.emit(Sighting{LostRecords: k.lost})
		k.lost = 0
	}
	before := k.parser.used
	k.feed(func() []Kill {
		if kill, ok := k.parser.Feed(record, k.wall(record)); ok {
			return []Kill{kill}
		}
		return nil
	})
	if k.parser.used > before {
		return k.wait()
	}
	return nil
}

// feed emits the kills that a step of the parser returns, but for those that were handled
// before the start, and makes known how far that is.
func (k *Kmsg) feed(step func() []Kill) {
	before := k.parser.NobodyKilled
	for _, kill := range step() {
		if kill.end > k.position.Told {
			k.emit(Sighting{Kill: kill})
		}
	}
	for range k.parser.NobodyKilled - before {
		k.cfg.NobodyKilled()
	}
	k.publish()
}

// wait sets the time in which something has to come that belongs to what has begun.
func (k *Kmsg) wait() error {
	k.quiet = false
	switch {
	case k.parser.last != nil:
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(k.cfg.Hold))
	case k.parser.Open():
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(patience))
	default:
		return k.log.SetReadDeadline(time.Time{})
	}
}

// late takes it that nothing has come for long enough.
func (k *Kmsg) late() error {
	if !k.quiet {
		k.quiet = true
		return k.log.SetReadDeadline(k.cfg.Clock.Now().Add(confirm))
	}
	k.feed(func() []Kill {
		if kill, ok := k.parser.Quiet(); ok {
			return []Kill{kill}
		}
		return k.parser.Flush()
	})
	return k.wait()
}

// wall converts a record's time to the time of day. Time servers correct the monotonic
// clock, but not that of the log, which drifts. The least age of a record that was seen
// is that of one that was read as soon as it was written: it is drift, if it is no more
// than there can be. It may have grown since.
func (k *Kmsg) wall(record Record) time.Time {
	now := k.cfg.Monotonic()
	age := now - record.SinceBoot
	k.drift, k.driftAt = min(k.drift+(now-k.driftAt)/mostDrift, age), now
	if k.drift.Abs() <= now/mostDrift {
		age -= k.drift
	}
	return k.cfg.Clock.Now().Add(-age)
}
