package prober

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// run is one run of a probe. The probe has it from the moment that the run is due.
type run struct {
	// manual means that Trigger asked for the run, off the probe's turn.
	manual bool
	key    Key
	// spawn starts a goroutine that may outlive the run.
	spawn func(func())

	// The rest is set when the run begins, and is read without the lock.
	due       time.Time
	pod       *corev1.Pod
	container *corev1.Container
	spec      *corev1.Probe
	opts      Options
	target    Target
	timing    timing
	// outlived means that the command of an earlier run has not ended.
	outlived bool
	// cancel cuts the run short.
	cancel context.CancelFunc
}

// finding is what a run found.
type finding struct {
	outcome Outcome
	output  string
	err     error // of an Errored one
}

// claim gives p a run. It needs mu.
func (m *Manager) claim(p *probe, spawn func(func())) {
	p.run = &run{key: p.key(), spawn: spawn}
	if !p.turn.IsZero() {
		p.run.manual, p.due, p.turn = true, p.turn, time.Time{}
	}
	m.agenda.Remove(p)
}

// step makes the run that p has been given.
func (m *Manager) step(ctx context.Context, p *probe) (Run, error) {
	runCtx, r, a := m.begin(ctx, p)
	if a != proceed {
		if a == drop || a == failLast {
			m.cfg.Observer.Removed(r.key)
		}
		m.loop.Trigger()
		return Run{}, ErrNotNow
	}
	began := m.cfg.Clock.Now()
	f := m.attempt(runCtx, p, r)
	result := Run{
		Key: r.key, Pod: r.pod, ContainerID: r.target.ID, Late: max(0, began.Sub(r.due)), Err: f.err,
		Record: Record{At: began, Duration: m.cfg.Clock.Now().Sub(began), Outcome: f.outcome, Output: f.output},
	}
	e, counted := m.end(ctx, p, r, f, &result)
	m.loop.Trigger()
	if !counted {
		if err := context.Cause(ctx); err != nil {
			return Run{}, fmt.Errorf("probe cut short: %w", err)
		}
		return Run{}, fmt.Errorf("probe cut short, its container is no more: %w", ErrNotNow)
	}
	m.cfg.Observer.Probed(result)
	if m.isRemoved(p) { // during the call, so Removed must follow it
		m.cfg.Observer.Removed(r.key)
	}
	m.emit(r, e)
	return result, nil
}

func (m *Manager) isRemoved(p *probe) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.removed
}

// begin looks the container up and decides what to do with p's run. If that is to proceed,
// it returns the run's context. If not, p has no run any more, and is due when there may
// be something to do.
func (m *Manager) begin(ctx context.Context, p *probe) (context.Context, *run, action) {
	target, known := m.lookup(p) // locks mu
	defer m.mu.Unlock()
	r := p.run
	if p.removed {
		return nil, r, rest // the Observer knows already
	}
	now := m.cfg.Clock.Now()
	if known {
		m.see(p.pod, p.container.Name, &target, now)
	}
	t := p.timing()
	a := decide(p.facts(&target, known, now))
	if a == proceed {
		r.pod, r.container, r.spec, r.opts = p.pod.spec, p.container, p.spec(), p.opts
		r.target, r.timing, r.outlived, r.due = target, t, p.command != nil, p.due
		if r.manual {
			r.due = now
		}
		ctx, r.cancel = context.WithCancel(ctx)
		return ctx, r, a
	}
	p.run = nil
	switch a {
	case drop, failLast:
		m.drop(p)
	case wait:
		m.agenda.put(p, p.eligible)
	case poll, fail:
		m.agenda.put(p, now.Add(min(t.period, m.cfg.PollPeriod)))
	case rest, proceed:
		m.agenda.put(p, now.Add(t.period))
	}
	return nil, r, a
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

// end counts what a run found, unless it was cut short or its container is gone,
// returns the event about it, and makes p due again.
func (m *Manager) end(ctx context.Context, p *probe, r *run, f finding, result *Run) (e event, counted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Clock.Now()
	p.run = nil
	if p.command != r {
		r.cancel()
	}
	switch {
	case p.removed:
		return event{}, false
	case ctx.Err() != nil, p.exited, p.id != r.target.ID:
		m.agenda.put(p, later(p.due, now))
		return event{}, false
	}
	before := p.count.result
	reached := m.count(p, r, f)
	result.Result = p.count.result
	m.remember(p, result)
	due := p.due
	if !r.manual || !due.After(now) {
		due = m.next(p, r, now, f.outcome)
	}
	m.agenda.put(p, due)
	return m.worth(p, r, f, reached && p.count.result != before, now), true
}

// next returns when p is due after a run. It keeps to its grid, so that delays do not
// add up. A probe that has missed its turn makes up for it at once, and only for one.
func (m *Manager) next(p *probe, r *run, now time.Time, o Outcome) time.Time {
	interval := r.timing.interval(p.kind, p.count, o <= Warned)
	if p.first {
		p.first = false
		interval -= spread(m.seed, r.key, min(interval/10, skew))
	}
	return later(p.due.Add(interval), now)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// count lets the thresholds decide, and publishes a change of the result.
func (m *Manager) count(p *probe, r *run, f finding) (reached bool) {
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
	if r.manual && outcome == Failure {
		return false // it was not its turn
	}
	before := p.count.result
	if reached = p.count.observe(p.kind, outcome, r.timing.thresholds); !reached || p.count.result == before {
		return reached
	}
	m.publish(p)
	if p.kind == Startup && outcome == Success {
		for _, q := range p.pod.probes { // those that waited for it
			if q != p && q.container.Name == p.container.Name && q.run == nil && !q.exited {
				m.agenda.put(q, later(q.eligible, m.cfg.Clock.Now()))
			}
		}
	}
	return reached
}

// remember keeps the run for History.
func (m *Manager) remember(p *probe, result *Run) {
	if m.cfg.History < 0 {
		return
	}
	record := result.Record
	if result.Err != nil {
		record.Output = result.Err.Error()
	}
	record.Output = strings.Clone(cut(record.Output, m.cfg.HistoryBytes))
	p.history = append(p.history, record)
	p.history = slices.Delete(p.history, 0, max(0, len(p.history)-m.cfg.History))
}

// cut returns at most the first limit bytes of s, and no half rune.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
