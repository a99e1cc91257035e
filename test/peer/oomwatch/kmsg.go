package oomwatch

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// kmsg is a /dev/kmsg in memory. Each opened file reads it from the start.
type kmsg struct {
	mu       sync.Mutex
	records  []Record
	refuses  bool // the next open fails
	reader   *kmsgFile
	deadline time.Time
}

func newKmsg() *kmsg { return &kmsg{} }

// kmsgFile is an open kmsg.
type kmsgFile struct {
	log     *kmsg
	next    int
	broken  error         // error of the next read
	changed chan struct{} // has capacity 1
}

var _ oomwatch.KmsgLog = (*kmsgFile)(nil)

func (k *kmsg) open() (oomwatch.KmsgLog, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuses {
		k.refuses = false
		return nil, os.ErrPermission
	}
	k.deadline = time.Time{}
	k.reader = &kmsgFile{log: k, changed: make(chan struct{}, 1)}
	return k.reader, nil
}

func (k *kmsg) add(records []Record) {
	k.mu.Lock()
	k.records = append(k.records, records...)
	k.mu.Unlock()
	k.wake()
}

// fail makes reads fail, and the next open if refuses is set.
func (k *kmsg) fail(refuses bool) {
	k.mu.Lock()
	k.reader.broken, k.refuses = syscall.EIO, refuses
	k.mu.Unlock()
	k.wake()
}

func (k *kmsg) wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reader == nil {
		return
	}
	select {
	case k.reader.changed <- struct{}{}:
	default:
	}
}

// take returns the next record, or nothing.
func (f *kmsgFile) take(p []byte) (n int, done bool, err error) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	switch {
	case f.broken != nil:
		return 0, true, f.broken
	case f.next == len(f.log.records):
		return 0, false, nil
	}
	record := f.log.records[f.next]
	f.next++
	if record.Lost > 0 {
		return 0, true, syscall.EPIPE
	}
	return copy(p, record.Text), true, nil
}

// Read implements [oomwatch.KmsgLog].
func (f *kmsgFile) Read(p []byte) (int, error) {
	for {
		if n, done, err := f.take(p); done {
			return n, err
		}
		f.log.mu.Lock()
		deadline := f.log.deadline
		f.log.mu.Unlock()
		var expired <-chan time.Time
		if !deadline.IsZero() {
			wait := time.Until(deadline)
			if wait <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case <-f.changed:
		case <-expired:
		}
	}
}

// SetReadDeadline implements [oomwatch.KmsgLog].
func (f *kmsgFile) SetReadDeadline(t time.Time) error {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.log.deadline = t
	return nil
}

// Seek implements [oomwatch.KmsgLog].
func (f *kmsgFile) Seek(int64, int) (int64, error) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.next = 0
	return 0, nil
}

// Close implements [oomwatch.KmsgLog].
func (f *kmsgFile) Close() error {
	f.log.mu.Lock()
	f.broken = os.ErrClosed
	f.log.mu.Unlock()
	f.log.wake()
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}
