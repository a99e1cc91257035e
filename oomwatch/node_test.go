package oomwatch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// node is a watcher of a kernelLog, and of counters that the test sets, in a bubble.
type node struct {
	*testing.T
	log     *kernelLog
	kmsg    *oomwatch.Kmsg
	counted *counted
	watcher *oomwatch.Watcher
	gate    chan struct{} // if not nil, the handler waits until it is closed
	nobody  *int          // if not nil, counts dumps without a kill
	stop    func()

	mu    sync.Mutex
	kills []oomwatch.Kill
}

// told returns the kills handled so far.
func (n *node) told() []oomwatch.Kill {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kills)
}

// handle records a kill and waits for the gate, if there is one.
func (n *node) handle(ctx context.Context, k oomwatch.Kill) {
	n.mu.Lock()
	n.kills = append(n.kills, k)
	gate := n.gate
	n.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
}

// setGate makes the handler wait until gate is closed, from now on.
func (n *node) setGate(gate chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gate = gate
}

// forget clears the recorded kills.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kills = nil
}

// bubble runs f on a node that watches.
func bubble(t *testing.T, f func(n *node), change ...func(*oomwatch.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, log: newKernelLog(1000)}
		n.start(oomwatch.Position{}, change...)
		f(n)
		n.stop()
	})
}

func (n *node) start(resume oomwatch.Position, change ...func(*oomwatch.Config)) {
	n.Helper()
	cfg := n.log.config()
	if n.nobody != nil {
		cfg.NoVictim = func() { *n.nobody++ }
	}
	kmsg, err := oomwatch.NewKmsg(cfg)
	require.NoError(n, err)
	n.kmsg, n.counted = kmsg, newCounted()
	config := oomwatch.Config{
		Sources: []oomwatch.Source{kmsg, n.counted},
		Handler: n.handle, Resume: resume,
	}
	for _, c := range change {
		c(&config)
	}
	n.watcher, err = oomwatch.New(config)
	require.NoError(n, err)
	n.run()
}

// run starts the watcher, or restarts it.
func (n *node) run() {
	n.Helper()
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan error)
	go func() { done <- n.watcher.Run(ctx) }()
	n.stop = func() {
		cancel()
		require.NoError(n, <-done)
	}
	n.pass(50 * time.Millisecond) // until the watcher has found the end of the log
}

// pass lets time pass.
func (n *node) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pids returns the PIDs of the reported kills, in order.
func (n *node) pids() []int {
	var pids []int
	for _, k := range n.told() {
		pids = append(pids, k.PID)
	}
	return pids
}
