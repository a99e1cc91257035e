package oomwatch

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// kmsg is a /dev/kmsg in memory.
type kmsg struct {
	mu       sync.Mutex
	records  []string
	deadline time.Time
	closed   bool
	changed  chan struct{} // of capacity 1
}

var _ oomwatch.KmsgLog = (*kmsg)(nil)

func (k *kmsg) add(records ...string) {
	k.mu.Lock()
	k.records = append(k.records, records...)
	k.mu.Unlock()
	k.wake()
}

func (k *kmsg) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Read implements [oomwatch.KmsgLog].
func (k *kmsg) Read(p []byte) (int, error) {
	for {
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return 0, os.ErrClosed
		}
		if len(k.records) > 0 {
			record := k.records[0]
			k.records = k.records[1:]
			k.mu.Unlock()
			if record == overrun {
				return 0, syscall.EPIPE
			}
			return copy(p, record), nil
		}
		deadline := k.deadline
		k.mu.Unlock()
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
		case <-k.changed:
		case <-expired:
		}
	}
}

// SetReadDeadline implements [oomwatch.KmsgLog].
func (k *kmsg) SetReadDeadline(t time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	return nil
}

// Seek implements [oomwatch.KmsgLog].
func (k *kmsg) Seek(int64, int) (int64, error) { return 0, nil }

// Close implements [oomwatch.KmsgLog].
func (k *kmsg) Close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.wake()
	return nil
}

func playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, facts := time.Now(), judge.Facts{}
		log := &kmsg{changed: make(chan struct{}, 1)}
		source, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{
			Open:      func() (oomwatch.KmsgLog, error) { return log, nil },
			BootID:    func() (string, error) { return "boot", nil },
			Monotonic: func() time.Duration { return time.Since(began) },
		})
		require.NoError(t, err)
		reporter, err := oomwatch.NewReporter(oomwatch.ReporterConfig{
			Events: &recorder{func(message string) { addEvent(facts, message) }},
			Node:   &corev1.ObjectReference{Kind: "Node", Name: "node"},
		})
		require.NoError(t, err)
		watcher, err := oomwatch.New(oomwatch.Config{
			Sources: []oomwatch.Source{source},
			Handler: func(ctx context.Context, k oomwatch.Kill) {
				reporter.Report(ctx, k)
				addKill(facts, k, began)
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		if w.History {
			log.add(w.Steps[0].Records...)
		}
		go func() { ended <- watcher.Run(ctx) }()
		if !w.History {
			time.Sleep(time.Second) // the end of an empty log is found
		}
		for i, s := range w.Steps {
			time.Sleep(time.Until(began.Add(time.Duration(i)*pause + time.Second)))
			if s.Overrun {
				log.add(overrun)
			}
			if i > 0 || !w.History {
				log.add(s.Records...)
			}
			time.Sleep(pause - 2*time.Second)
			synctest.Wait()
			all = append(all, facts)
			facts = judge.Facts{}
		}
		cancel()
		require.NoError(t, <-ended)
	})
	return all
}

// addKill adds a kill to the facts, and the others of its group.
func addKill(f judge.Facts, k oomwatch.Kill, began time.Time) {
	victims := k.Victims
	if victims == nil {
		victims = []oomwatch.Victim{k.Victim}
	}
	for _, v := range victims {
		name := "kill " + strconv.Itoa(v.PID)
		f[name+"/process"] += v.Process
		f[name+"/victim cgroup"] += k.VictimCgroup
		f[name+"/limit cgroup"] += k.LimitCgroup
		f[name+"/constraint"] += k.Constraint
		f[name+"/second"] += fmt.Sprint(int(k.Time.Sub(began).Seconds()))
	}
}
