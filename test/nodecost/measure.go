package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// settleTime is the time between the start of the last pod and the measurement. The agent
	// is idle at its end.
	settleTime = 20 * time.Second
	// startTimeout is the time within which all pods must run.
	startTimeout = 2 * time.Minute
)

// figures are the results of one run.
type figures struct {
	cpu    float64            // seconds a minute
	rss    float64            // MiB, at the end
	allocs float64            // objects a minute
	bytes  float64            // MiB of garbage a minute
	calls  map[string]float64 // CRI calls a minute, by method
	delays []float64          // ms from a manifest to its pod's status, if pods were replaced
}

// sample is the resource usage of the agent from its start to a time.
type sample struct {
	at            time.Time
	cpu           float64 // seconds so far
	rss           float64 // bytes
	allocs, bytes float64 // so far
	calls         map[string]int
}

// run is one measurement of an agent in a scenario.
type run struct {
	agent    program
	scenario scenario
	pods     int
	length   time.Duration
	profile  string // file for a CPU profile, empty for none
}

// node is an agent with its runtime and its manifests.
type node struct {
	agent     *agent
	runtime   *cri
	manifests folder
}

func (r run) measure(ctx context.Context) (_ figures, err error) {
	dir, err := os.MkdirTemp("", "nodecost")
	if err != nil {
		return figures{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket, manifests := filepath.Join(dir, "cri.sock"), folder{filepath.Join(dir, "manifests"), r.pods, r.scenario.probes}
	if err := os.Mkdir(manifests.path, 0o750); err != nil {
		return figures{}, err
	}
	for i := range r.pods {
		if err := manifests.write(i, 0); err != nil {
			return figures{}, err
		}
	}
	runtime, err := startRuntime(ctx, socket, r.scenario.events)
	if err != nil {
		return figures{}, err
	}
	defer func() { err = errors.Join(err, runtime.stop()) }()
	args := []string{
		"--cri-endpoint", "unix://" + socket, "--manifests", manifests.path, "--root-dir", filepath.Join(dir, "root"),
		"--node-name", nodeName, "--max-pods", fmt.Sprint(maxPods), "--eviction-hard", "",
	}
	if r.profile != "" {
		args = append(args, "--enable-pprof")
	}
	agent, err := startAgent(ctx, r.agent.path, args...)
	if err != nil {
		return figures{}, err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()

	if err := await(ctx, startTimeout, "all pods to run", func() bool { return len(agent.seen()) >= r.pods }); err != nil {
		return figures{}, fmt.Errorf("%w: %d pods run\n%s", err, len(agent.seen()), agent.stderr.String())
	}
	if err := pause(ctx, settleTime); err != nil {
		return figures{}, err
	}
	n := node{agent, runtime, manifests}
	profiled := make(chan error, 1)
	go func() { profiled <- n.profile(ctx, r.profile, r.length) }()
	f, err := n.window(ctx, r.scenario.churn, r.length)
	return f, errors.Join(err, <-profiled)
}

// window measures for the given length. If churn is set, it replaces pods during that
// time.
func (n node) window(ctx context.Context, churn bool, length time.Duration) (figures, error) {
	already := len(n.agent.seen())
	before, err := n.sample(ctx)
	if err != nil {
		return figures{}, err
	}
	var written []change
	if churn {
		written, err = n.manifests.replace(ctx, length)
		if err == nil {
			err = await(ctx, startTimeout, "the last replaced pod to run", func() bool { return len(n.agent.seen()) >= already+len(written) })
		}
	} else {
		err = pause(ctx, length)
	}
	if err != nil {
		return figures{}, err
	}
	after, err := n.sample(ctx)
	if err != nil {
		return figures{}, err
	}
	minutes := after.at.Sub(before.at).Minutes()
	f := figures{
		cpu: (after.cpu - before.cpu) / minutes, rss: after.rss / (1 << 20),
		allocs: (after.allocs - before.allocs) / minutes, bytes: (after.bytes - before.bytes) / (1 << 20) / minutes,
		calls: map[string]float64{}, delays: delays(written, n.agent.seen()[already:]),
	}
	for method, count := range after.calls {
		if count -= before.calls[method]; count > 0 {
			f.calls[method] = float64(count) / minutes
		}
	}
	return f, nil
}

// profile writes two profiles of the agent, FILE.profile (CPU) and FILE.allocs. It does
// nothing if file is empty.
func (n node) profile(ctx context.Context, file string, length time.Duration) error {
	if file == "" {
		return nil
	}
	var all sync.WaitGroup
	var errs [2]error
	for i, kind := range []string{"profile", "allocs"} {
		all.Go(func() {
			var data []byte
			data, errs[i] = n.agent.get(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", kind, int(length.Seconds())))
			if errs[i] == nil {
				errs[i] = os.WriteFile(file+"."+kind, data, 0o600)
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

func (n node) sample(ctx context.Context) (s sample, err error) {
	values, err := n.agent.metrics(ctx, "process_cpu_seconds_total", "process_resident_memory_bytes",
		"go_memstats_mallocs_total", "go_memstats_alloc_bytes_total")
	if err != nil {
		return sample{}, err
	}
	s = sample{at: time.Now(), cpu: values[0], rss: values[1], allocs: values[2], bytes: values[3]}
	s.calls, err = n.runtime.calls()
	return s, err
}

// delays returns for each written manifest the milliseconds until the agent reported the
// pod as running.
func delays(written, seen []change) (ms []float64) {
	for _, w := range written {
		i := slices.IndexFunc(seen, func(c change) bool { return c.pod == w.pod && c.at.After(w.at) })
		if i >= 0 {
			ms = append(ms, float64(seen[i].at.Sub(w.at).Microseconds())/1000)
		}
	}
	return ms
}

// await waits until done returns true.
func await(ctx context.Context, timeout time.Duration, what string, done func() bool) error {
	for deadline := time.Now().Add(timeout); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", timeout, what)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
