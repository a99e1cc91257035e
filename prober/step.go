package prober

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// job is one run of a probe: what it needs to know, so that it needs no lock.
type job struct {
	key       Key
	pod       *corev1.Pod
	container *corev1.Container
	spec      *corev1.Probe
	opts      Options
	target    Target
	timing    timing
	flight    *flight
	// kept is the idle connection, taken over from the probe and given back.
	kept *link
	// redirected is an answer over it that is to go elsewhere.
	redirected answer
	// deadline is that of the run, of whatever handler but exec.
	deadline time.Time
	// outlived says that the command of an earlier run is still there.
	outlived bool
	manual   bool
	// dropped says that there is nothing to probe any more.
	dropped bool
	due     int64
	// spawn starts a goroutine that may outlive the run.
	spawn func(func())
}

// finding is what a run found.
type finding struct {
	outcome Outcome
	output  string
	err     error // of an Errored one
}

// step is one run of p, which the caller has made busy and taken off the agenda.
func (m *Manager) step(ctx context.Context, p *probe, spawn func(func())) (Run, error) {
	var j job
	if a := m.begin(p, &j); a != run {
		if j.dropped {
			m.cfg.Observer.Removed(j.key)
		}
		m.wake()
		return Run{}, ErrNotNow
	}
	j.spawn = spawn
	j.deadline = clock.RealClock{}.Now().Add(j.timing.timeout)
	began := m.now()
	f, done := m.again(ctx, p, &j)
	if !done {
		f = m.first(ctx, p, &j)
	}
	took := time.Duration(m.now() - began)
	r := Run{
		Key: j.key, Pod: j.pod, ContainerID: j.target.ID, Late: max(0, time.Duration(began-j.due)), Err: f.err,
		Record: Record{At: m.start.Add(time.Duration(began)), Duration: took, Outcome: f.outcome, Output: f.output},
	}
	e, counted := m.end(ctx, p, &j, f, &r)
	m.wake()
	if !counted {
		if err := context.Cause(ctx); err != nil {
			return Run{}, fmt.Errorf("probe cut short: %w", err)
		}
		return Run{}, fmt.Errorf("probe cut short, its container is no more: %w", ErrNotNow)
	}
	m.cfg.Observer.Probed(r)
	if m.isRemoved(p) { // during the call, and who counts has counted since
		m.cfg.Observer.Removed(j.key)
	}
	m.emit(&j, e)
	return r, nil
}

func (m *Manager) isRemoved(p *probe) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.removed
}

// first makes a run from its beginning.
func (m *Manager) first(ctx context.Context, p *probe, j *job) finding {
	if j.spec.Exec == nil {
		ctx, cancel := context.WithDeadline(ctx, j.deadline)
		defer cancel()
		m.launch(p, j, cancel)
		return m.attempt(ctx, j)
	}
	ctx, cancel := context.WithCancel(ctx)
	m.launch(p, j, cancel)
	if j.outlived {
		cancel()
		command, _ := expand(j.spec.Exec.Command, j.container.Env) // one that is too long has not been run
		r := ExecRequest{Command: command, Timeout: j.timing.timeout}
		return finding{outcome: Failed, output: timedOut(r) + ", and has not ended since"}
	}
	return m.execProbe(ctx, p, j) // which calls cancel when the command has ended
}

// begin looks the container up and decides. If it says run, j is filled; if not, p
// is no longer busy and is due when there may be something to do.
func (m *Manager) begin(p *probe, j *job) action {
	target, known := m.lookup(p) // locks mu
	defer m.mu.Unlock()
	if p.removed {
		p.busy = false
		p.hangUp()
		return drop
	}
	now := m.now()
	if known {
		m.see(p.pod, p.container.Name, &target, now)
	}
	t := p.timing()
	a := decide(p.facts(&target, known, now))
	if a == run {
		j.key, j.pod, j.container, j.spec = p.key(), p.pod.spec, p.container, p.spec()
		if p.opts != nil {
			j.opts = *p.opts
		}
		j.target, j.timing, j.manual, j.due = target, t, p.manual, p.due
		j.kept, p.kept = p.kept, nil
		if j.manual {
			j.due = now
		}
		return a
	}
	p.busy, p.manual = false, false
	switch a {
	case drop, failLast:
		j.key, j.dropped = p.key(), true
		m.drop(p)
	case wait:
		m.agenda.put(p, p.eligible)
	case poll, fail:
		m.agenda.put(p, now+int64(min(t.period, m.cfg.PollPeriod)))
	case rest, run:
		m.agenda.put(p, now+int64(t.period))
	}
	return a
}

// lookup asks what is known of p's container, until the answer is newer than any
// that Refresh had. It returns with mu locked.
func (m *Manager) lookup(p *probe) (Target, bool) {
	m.mu.Lock()
	for {
		looks, key := p.pod.looks, p.key()
		m.mu.Unlock()
		target, known := m.cfg.Lookup(key.PodUID, key.Container)
		m.mu.Lock()
		if p.removed || p.pod.looks == looks {
			return target, known
		}
	}
}

// launch makes the run one that can be cut short. A command that has outlived its
// run stands in the way of another, and of nothing else.
func (m *Manager) launch(p *probe, j *job, cancel context.CancelFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch outlived := p.flight != nil && p.flight != j.flight; {
	case p.removed || p.id != j.target.ID:
		cancel()
	case outlived && j.spec.Exec != nil:
		j.outlived = true
		return
	case outlived: // the spec says something else by now
		p.flight.cancel()
	}
	j.flight = &flight{cancel: cancel}
	p.flight = j.flight
}

// landed says that the run and all it started is over.
func (m *Manager) landed(p *probe, f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.flight == f {
		p.flight = nil
	}
}

// end counts what a run found, unless it was cut short or its container is gone,
// says what event it is worth, and makes p due again.
func (m *Manager) end(ctx context.Context, p *probe, j *job, f finding, r *Run) (event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	p.busy, p.manual = false, false
	if j.spec.Exec == nil && p.flight == j.flight {
		p.flight = nil
	}
	p.kept = j.kept
	if p.removed || ctx.Err() != nil {
		p.hangUp()
	}
	switch {
	case p.removed:
		return event{}, false
	case ctx.Err() != nil, p.exited, p.id != j.target.ID:
		m.agenda.put(p, max(p.due, now))
		return event{}, false
	}
	before := p.count
	reached := m.count(p, j, f)
	m.remember(p, r)
	r.Result = p.count.result
	if !j.manual || p.due <= now {
		p.due = p.after(m, j, now, f.outcome)
	}
	m.agenda.put(p, p.due)
	return m.worth(p, j, f, reached && p.count.result != before.result, now), true
}

// after returns when p is due after a run.
func (p *probe) after(m *Manager, j *job, now int64, o Outcome) int64 {
	interval := j.timing.interval(p.kind, p.count, o <= Warned)
	if p.first {
		p.first = false
		interval -= spread(m.seed, j.key, min(interval/10, skew))
	}
	return next(p.due, now, interval)
}

// count lets the thresholds decide, and tells who wants to know of a change.
func (m *Manager) count(p *probe, j *job, f finding) (reached bool) {
	outcome := Success
	switch f.outcome {
	case Succeeded, Warned:
	case Failed:
		outcome = Failure
	case Errored:
		if !m.cfg.policy(p.kind).counts(f.err) {
			return false
		}
		outcome = Failure
	}
	if j.manual && outcome == Failure {
		return false // it was not its turn
	}
	before := p.count.result
	if reached = p.count.observe(p.kind, outcome, j.timing.thresholds); !reached || p.count.result == before {
		return reached
	}
	m.publish(p)
	if p.kind == Startup && outcome == Success {
		for _, q := range p.pod.probes { // those who waited for it
			if q != p && q.container.Name == p.container.Name && !q.busy && !q.exited {
				m.agenda.put(q, max(q.eligible, m.now()))
			}
		}
	}
	return reached
}

// remember keeps the run for History.
func (m *Manager) remember(p *probe, r *Run) {
	if m.cfg.History < 0 {
		return
	}
	if p.ring == nil {
		p.ring = &history{}
	}
	output := r.Output
	if r.Err != nil {
		output = r.Err.Error()
	}
	p.ring.add(m.cfg.History, newEntry(int64(r.At.Sub(m.start)), r.Duration, r.Outcome), cut(output, m.cfg.HistoryBytes))
}
