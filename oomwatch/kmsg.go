package oomwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
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
	// Told are the kills after it that were handled already, because one that had begun
	// before them was not: their [Kill.Sequence], separated by commas.
	Told string
}

// told returns the kills that were handled.
func (p Position) told() (sequences []uint64) {
	for text := range strings.SplitSeq(p.Told, ",") {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			sequences = append(sequences, n)
		}
	}
	return sequences
}

// withTold returns p with those of some handled kills that are after it.
func (p Position) withTold(sequences []uint64) Position {
	slices.Sort(sequences)
	var after []string
	for _, n := range slices.Compact(sequences) {
		if n > p.Sequence {
			after = append(after, strconv.FormatUint(n, 10))
		}
	}
	p.Told = strings.Join(after, ",")
	return p
}

// KmsgLog is an open /dev/kmsg: each Read returns one record, after waiting for it,
// EPIPE once where records were overwritten unread, and os.ErrDeadlineExceeded past
// the deadline. *os.File is one.
type KmsgLog interface {
	io.ReadSeekCloser
	SetReadDeadline(time.Time) error
}

// KmsgConfig configures a [Kmsg]. The zero value reads the machine's own log from its
// end on.
type KmsgConfig struct {
	// Resume is where to go on; nothing up to it is told again. The zero value, and
	// that of another boot, is the end of the log.
	Resume Position
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
	cfg    KmsgConfig
	reader reader

	mu       sync.Mutex
	position Position
}

var _ Source = (*Kmsg)(nil)

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
	k := &Kmsg{cfg: cfg, position: cfg.Resume}
	k.reader = reader{cfg: &k.cfg, reached: k.setPosition, position: cfg.Resume, told: cfg.Resume.told()}
	return k, nil
}

// Name returns "kmsg".
func (k *Kmsg) Name() string { return "kmsg" }

// Watch reads until ctx is done, and then returns nil, or until reading fails. It may
// be called again when it has returned, by one goroutine at a time, and goes on where
// it was.
func (k *Kmsg) Watch(ctx context.Context, emit func(Sighting)) error {
	log, err := k.cfg.Open()
	if err != nil {
		return fmt.Errorf("open the kernel's log: %w", err)
	}
	closeLog := sync.OnceFunc(func() { _ = log.Close() }) // it was only read
	defer closeLog()
	defer context.AfterFunc(ctx, closeLog)()
	boot, err := k.cfg.BootID()
	if err != nil {
		return fmt.Errorf("find the place in the kernel's log: %w", err)
	}
	r := &k.reader
	r.log, r.emit = log, emit
	err = r.run(boot)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read the kernel's log: %w", err)
}

// Position is how far the log has been read and its kills emitted. Those need not
// have been handled: what to save for a resumption is [Watcher.Position].
func (k *Kmsg) Position() Position {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.position
}

func (k *Kmsg) setPosition(p Position) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position = p
}

// reader reads a log, and goes on in it when that had to be opened again.
type reader struct {
	log      KmsgLog
	cfg      *KmsgConfig
	emit     func(Sighting)
	reached  func(Position)
	position Position // but for Told
	told     []uint64 // kills that were handled before the start, and not read again yet
	parser   Parser
	drift    drift
	lost     uint64 // records that were overwritten, of which no sighting has told
	quiet    bool   // the deadline is over; what is there already is still read
	buf      [recordSize]byte
}

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
)

// run reads until that fails for good.
func (r *reader) run(boot string) error {
	if _, err := r.log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if r.position.BootID != boot {
		r.position, r.told, r.parser = Position{BootID: boot}, nil, Parser{}
		if err := r.history(); err != nil {
			return err
		}
	}
	r.emit(Sighting{})
	err := r.wait()
	for err == nil {
		var record Record
		record, err = r.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = r.late()
		case err == nil:
			err = r.take(record)
		}
	}
	return err
}

// late takes it that nothing has come for long enough.
func (r *reader) late() error {
	if !r.quiet {
		r.quiet = true
		return r.log.SetReadDeadline(r.cfg.Clock.Now().Add(confirm))
	}
	if r.parser.last != nil {
		if kill, ok := r.parser.Quiet(); ok {
			r.tell(kill)
		}
	} else {
		r.feed(r.parser.Flush)
	}
	r.publish()
	return r.wait()
}

// wait sets the time in which something has to come that belongs to what has begun.
func (r *reader) wait() error {
	r.quiet = false
	switch {
	case r.parser.last != nil:
		return r.log.SetReadDeadline(r.cfg.Clock.Now().Add(r.cfg.Hold))
	case r.parser.Open():
		return r.log.SetReadDeadline(r.cfg.Clock.Now().Add(patience))
	default:
		return r.log.SetReadDeadline(time.Time{})
	}
}

// tell emits a kill.
func (r *reader) tell(kill Kill) {
	i := slices.Index(r.told, kill.Sequence)
	if i >= 0 {
		r.told = slices.Delete(r.told, i, i+1)
	}
	r.emit(Sighting{Kill: kill, told: i >= 0})
}

// feed emits the kills that a step of the parser returns.
func (r *reader) feed(step func() []Kill) {
	before := r.parser.NobodyKilled
	for _, kill := range step() {
		r.tell(kill)
	}
	for range r.parser.NobodyKilled - before {
		r.cfg.NobodyKilled()
	}
}

// Where the log ends can only be learned by reading it.
const (
	historyQuiet   = 20 * time.Millisecond // nothing for so long: this is the end
	historyLongest = time.Second           // for a log that is never quiet
)

// history skips all that was logged before the start and notes where it ends, so that
// a later start can resume there even if nothing is logged until then.
func (r *reader) history() error {
	began := r.cfg.Clock.Now()
	for {
		now := r.cfg.Clock.Now()
		if now.Sub(began) > historyLongest {
			break
		}
		if err := r.log.SetReadDeadline(now.Add(historyQuiet)); err != nil {
			return err
		}
		record, err := r.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		r.position.Sequence = record.Sequence
	}
	r.lost = 0 // nobody was to read it
	r.publish()
	return nil
}

// next returns the next record that was not read before. One that is damaged is
// skipped.
func (r *reader) next() (Record, error) {
	for {
		n, err := r.log.Read(r.buf[:])
		if errors.Is(err, syscall.EPIPE) {
			continue // the sequence of the next record tells how many are missing
		}
		if err != nil {
			return Record{}, err
		}
		record, err := ParseRecord(r.buf[:n])
		last := r.position.Sequence
		if err != nil || last > 0 && record.Sequence <= last {
			continue
		}
		if last > 0 {
			r.lost += record.Sequence - last - 1
		}
		return record, nil
	}
}

// take takes one record of the log.
func (r *reader) take(record Record) error {
	r.position.Sequence = record.Sequence
	defer r.publish()
	if r.lost > 0 {
		r.emit(Sighting{LostRecords: r.lost})
		r.lost = 0
	}
	before := r.parser.relevant
	r.feed(func() []Kill {
		if kill, ok := r.parser.Feed(record, r.wall(record)); ok {
			return []Kill{kill}
		}
		return nil
	})
	if r.parser.relevant > before {
		return r.wait()
	}
	return nil
}

// publish says how far the log has been read, but for what is not told yet.
func (r *reader) publish() {
	p := r.position
	if from := r.parser.from(); from > 0 {
		p.Sequence = from - 1
	}
	r.reached(p.withTold(slices.Clone(r.told)))
}

// wall converts a record's time to the time of day.
func (r *reader) wall(record Record) time.Time {
	return r.cfg.Clock.Now().Add(-r.drift.age(record.SinceBoot, r.cfg.Monotonic()))
}

// drift is how far the clock of the log is behind the monotonic one, which time
// servers correct and the log's nobody.
type drift struct {
	least time.Duration
	at    time.Duration // by the monotonic clock
	known bool
}

// mostDrift is one in 2,000, the most that the kernel lets a time server correct.
const mostDrift = 2000

// age is how old a record is. The least age seen is that of one that was read as soon
// as it was written: it is drift, if it is no more than there can be. It may have grown
// since.
func (d *drift) age(sinceBoot, monotonic time.Duration) time.Duration {
	age := monotonic - sinceBoot
	d.least += (monotonic - d.at) / mostDrift
	if !d.known || age < d.least {
		d.least, d.known = age, true
	}
	d.at = monotonic
	if d.least.Abs() <= monotonic/mostDrift {
		age -= d.least
	}
	return age
}
