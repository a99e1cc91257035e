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

// run is one run of a probe. It is created when the probe is due.
type run struct {
	// manual means that the run was requested by Trigger, in addition to the schedule.
	manual bool
	key    Key
	// spawn starts a goroutine that may outlive the run.
	spawn func(func())

	// The fields below are set when the run begins, and are read without the lock.
	due       time.Time
	pod       *corev1.Pod
	container *corev1.Container
	spec      *corev1.Probe
	opts      Options
	target    Target
	timing    timing
	// outlived means that the command of an earlier run has not ended.
	outlived bool
	// cancel cancels the run.
	cancel context.CancelFunc
}

// finding is the result of a run.
type finding struct {
	outcome Outcome
	output  string
	err     error // set if the outcome is Errored
}

// claim assigns a new run to p and removes p from the schedule. The caller holds mu.
func (m *Manager) claim(p *probe, spawn func(func())) {
	p.run = &run{key: p.key(), spawn: spawn}
	if !p.scheduledFor.IsZero() {
		p.run.manual, p.due, p.scheduledFor = true, p.scheduledFor, time.Time{}
	}
	m.schedule.Remove(p)
}

// step does the run that was assigned to p.
func (m *Manager) step(ctx context.Context, p *probe) (Run, error) {
	runCtx, r, a := m.begin(ctx, p)
	if a != proceed {
		if a == drop {
			m.cfg.Observer.Removed(r.key)
		}
		m.loop.Trigger()
		return Run{}, ErrNotRunnable
	}
	began := m.cfg.Clock.Now()
	f := m.attempt(runCtx, p, r)
	result := Run{
		Key: r.key, Pod: r.pod, ContainerID: r.target.ID, Late: max(0, began.Sub(r.due)), Err: f.err,
		Record: Record{At: began, Duration: m.cfg.Clock.Now().Sub(began), Outcome: f.outcome, Output: f.output},
	}
	e, counted := m.finish(ctx, p, r, f, &result)
	m.loop.Trigger()
	if !counted {
		if err := context.Cause(ctx); err != nil {
			return Run{}, fmt.Errorf("probe cancelled: %w", err)
		}
		return Run{}, fmt.Errorf("probe cancelled because the container was removed or replaced, or has exited: %w", ErrNotRunnable)
	}
	m.cfg.Observer.RunFinished(result)
	if m.isRemoved(p) { // p was removed during the run: Removed must follow the last RunFinished
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

// begin looks up the container and decides what to do with p's run. If the decision is to
// proceed, it returns the run's context. Otherwise it ends the run, and removes p or
// schedules p for the time at which a run may be possible.
func (m *Manager) begin(ctx context.Context, p *probe) (context.Context, *run, action) {
	target, known := m.lookup(p) // locks mu
	defer m.mu.Unlock()
	r := p.run
	if p.removed {
		return nil, r, idle // the method that removed p calls Observer.Removed
	}
	now := m.cfg.Clock.Now()
	if known {
		m.updateContainer(p.pod, p.container.Name, &target, now)
	}
	t := p.timing()
	a := plan(p.facts(&target, known, now))
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
	case drop:
		m.removeProbe(p)
	case wait:
		m.schedule.put(p, p.eligible)
	case poll:
		m.schedule.put(p, now.Add(min(t.period, m.cfg.PollPeriod)))
	case idle, proceed:
		m.schedule.put(p, now.Add(t.period))
	}
	return nil, r, a
}

// lookup looks up p's container and repeats the lookup if Refresh was called in the
// meantime. It returns with mu locked.
func (m *Manager) lookup(p *probe) (Target, bool) {
	m.mu.Lock()
	for {
		refreshes, key := p.pod.refreshes, p.key()
		m.mu.Unlock()
		target, known := m.cfg.Lookup(key.PodUID, key.Container)
		m.mu.Lock()
		if p.removed || p.pod.refreshes == refreshes {
			return target, known
		}
	}
}

// finish counts the result of a run, unless the run was cancelled or the container no
// longer runs. It returns the event for the result. Unless p was removed, it also schedules
// p again.
func (m *Manager) finish(ctx context.Context, p *probe, r *run, f finding, result *Run) (e event, counted bool) {
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
		m.schedule.put(p, later(p.due, now))
		return event{}, false
	}
	before := p.count.result
	reached := m.count(p, r, f)
	result.Result = p.count.result
	m.recordRun(p, result)
	due := p.due
	if !r.manual || !due.After(now) {
		due = m.next(p, r, now, f.outcome)
	}
	m.schedule.put(p, due)
	return m.newEvent(p, r, f, reached && p.count.result != before, now), true
}

// next returns when p is due after a run. It adds the interval to the time at which the run
// was due, so that delays do not add up. If the sum is in the past, the next run is due
// now, and all missed runs are skipped.
func (m *Manager) next(p *probe, r *run, now time.Time, o Outcome) time.Time {
	interval := r.timing.interval(p.kind, p.count, o <= Warned)
	if p.isFirstRun {
		p.isFirstRun = false
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

// count applies the thresholds to the result of a run and publishes a change of the probe's
// result. It reports whether a threshold was reached.
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
		return false // see Trigger
	}
	before := p.count.result
	if reached = p.count.observe(p.kind, outcome, r.timing.thresholds); !reached || p.count.result == before {
		return reached
	}
	m.publish(p)
	if p.kind == Startup && outcome == Success {
		for _, q := range p.pod.probes { // the other probes of the container can run now
			if q != p && q.container.Name == p.container.Name && q.run == nil && !q.exited {
				m.schedule.put(q, later(q.eligible, m.cfg.Clock.Now()))
			}
		}
	}
	return reached
}

// recordRun stores the run for History.
func (m *Manager) recordRun(p *probe, result *Run) {
	if m.cfg.History < 0 {
		return
	}
	record := result.Record
	if result.Err != nil {
		record.Output = result.Err.Error()
	}
	record.Output = strings.Clone(truncate(record.Output, m.cfg.HistoryBytes))
	p.history = append(p.history, record)
	p.history = slices.Delete(p.history, 0, max(0, len(p.history)-m.cfg.History))
}

// truncate returns at most the first limit bytes of s, cut between runes.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
