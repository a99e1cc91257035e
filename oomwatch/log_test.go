package oomwatch_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// kernelLog is a ring buffer like the kernel's, which overwrites the oldest records.
type kernelLog struct {
	mu       sync.Mutex
	records  []string
	first    uint64 // sequence number of records[0]
	capacity int
	changed  chan struct{} // closed and replaced when something is logged
	broken   error         // error of Read
	booted   time.Time     // time of the boot by the log's clock
	started  time.Time
	paused   bool // readers block
	whole    int  // number of records that are written, and overwritten, together
}

func newKernelLog(capacity int) *kernelLog {
	return &kernelLog{whole: 1, first: 1, capacity: capacity, changed: make(chan struct{}), booted: time.Now(), started: time.Now()}
}

// config reads this log.
func (l *kernelLog) config() oomwatch.KmsgConfig {
	return oomwatch.KmsgConfig{
		Open:      l.open,
		BootID:    func() (string, error) { return "boot", nil },
		Monotonic: func() time.Duration { return time.Since(l.started) },
	}
}

// print logs lines as the kernel does.
func (l *kernelLog) print(texts ...string) {
	for some := range slices.Chunk(texts, l.whole) {
		l.write(6, some...)
	}
}

func (l *kernelLog) write(priority int, texts ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range texts {
		next := l.first + uint64(len(l.records))
		l.records = append(l.records, fmt.Sprintf("%d,%d,%d,-;%s\n", priority, next, time.Since(l.booted).Microseconds(), text))
	}
	if over := (len(l.records) - l.capacity + l.whole - 1) / l.whole * l.whole; over > 0 {
		l.records = l.records[over:]
		l.first += uint64(over)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// hold blocks readers, regardless of their deadline, or lets them continue.
func (l *kernelLog) hold(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = paused
	close(l.changed)
	l.changed = make(chan struct{})
}

// held returns a channel that is closed when readers may continue, or nil if they are not
// blocked.
func (l *kernelLog) held() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.paused {
		return nil
	}
	return l.changed
}

// fail makes every following read fail with err. If err is nil, reads succeed again.
func (l *kernelLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *kernelLog) open() (oomwatch.KmsgLog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return nil, l.broken
	}
	return &openLog{log: l, closed: make(chan struct{})}, nil
}

// openLog is an open kernelLog with the semantics of /dev/kmsg.
type openLog struct {
	log      *kernelLog
	next     uint64
	deadline time.Time
	closed   chan struct{}
}

func (o *openLog) Read(b []byte) (int, error) {
	for {
		if changed := o.log.held(); changed != nil {
			select {
			case <-changed:
				continue
			case <-o.closed:
				return 0, os.ErrClosed
			}
		}
		// If the deadline has passed, nothing is read, even if records are available.
		if !o.deadline.IsZero() && !time.Now().Before(o.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		n, changed, err := o.tryRead(b)
		if changed == nil {
			return n, err
		}
		var late <-chan time.Time
		if !o.deadline.IsZero() {
			late = time.After(time.Until(o.deadline))
		}
		select {
		case <-changed:
		case <-late:
			return 0, os.ErrDeadlineExceeded
		case <-o.closed:
			return 0, os.ErrClosed
		}
	}
}

// tryRead returns the data that can be read now, or a channel that is closed when the caller
// must try again.
func (o *openLog) tryRead(b []byte) (n int, changed <-chan struct{}, err error) {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != nil:
		return 0, nil, l.broken
	case o.next < l.first:
		o.next = l.first
		return 0, nil, &os.PathError{Op: "read", Path: "/dev/kmsg", Err: syscall.EPIPE}
	case o.next >= l.first+uint64(len(l.records)):
		return 0, l.changed, nil
	}
	n = copy(b, l.records[o.next-l.first])
	o.next++
	return n, nil, nil
}

func (o *openLog) Seek(_ int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, syscall.EINVAL
	}
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	o.next = o.log.first
	return 0, nil
}

func (o *openLog) SetReadDeadline(t time.Time) error {
	o.deadline = t
	return nil
}

func (o *openLog) Close() error {
	close(o.closed)
	return nil
}

// dump returns the kernel's log lines about a kill in a container at its limit.
func dump(cgroup string, pid int) []string {
	return []string{
		"exe invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
		"memory: usage 32768kB, limit 32768kB, failcnt 21",
		fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=exe,pid=%d,uid=0", cgroup, cgroup, pid),
		fmt.Sprintf("Memory cgroup out of memory: Killed process %d (exe) total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0", pid),
	}
}

// counted is a source whose counters the test sets.
type counted struct{ sightings chan oomwatch.Observation }

func newCounted() *counted { return &counted{sightings: make(chan oomwatch.Observation)} }

func (*counted) Name() string                { return "counted" }
func (*counted) Position() oomwatch.Position { return oomwatch.Position{} }

func (c *counted) Watch(ctx context.Context, _ oomwatch.Position, emit func(oomwatch.Observation)) error {
	emit(oomwatch.Observation{})
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-c.sightings:
			emit(s)
		}
	}
}

func (c *counted) rise(t *testing.T, cgroup string, kills int) {
	t.Helper()
	c.sightings <- oomwatch.Observation{Counter: true, Kill: oomwatch.Kill{
		Time: time.Now(), VictimCgroup: cgroup, Kills: kills,
	}}
}
