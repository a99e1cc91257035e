package pleg

import "time"

// Stats are counters since [New], and what holds now.
type Stats struct {
	// Relists counts the global relists that succeeded, FailedRelists those whose
	// lists failed, and PodRelists those of single pods.
	Relists, FailedRelists, PodRelists uint64
	// Inspections counts the inspections of pods that came to an end,
	// FailedInspections those of them that failed or timed out.
	Inspections, FailedInspections uint64
	// Events counts the events delivered.
	Events uint64
	// Hints counts the events of the runtime's stream, and MissedHints the pods in
	// which a global relist found a change that the open stream did not announce.
	Hints, MissedHints uint64
	// Reconnects counts how often the stream was opened but for the first time.
	Reconnects uint64
	// Streaming says that the stream is open.
	Streaming bool
	// Period is the time between two global relists as it is now.
	Period time.Duration
	// SetAside counts the pods whose last inspection failed.
	SetAside int
	// InProgress is the age of the global relist under way, its handlers included,
	// or 0. One that grows says where a generator is stuck.
	InProgress time.Duration
	// ListError is the reason why the last global relist failed; nil if it did not.
	ListError error
}

// Stats returns a copy of the counters. It does not wait for a pass.
func (g *Generator) Stats() Stats {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Streaming, s.Period, s.ListError = g.pace.up, g.pace.period, g.relistErr
	s.Reconnects = uint64(max(0, g.pace.opened-1))
	if !g.began.IsZero() {
		s.InProgress = now.Sub(g.began)
	}
	return s
}

// note changes the counters.
func (g *Generator) note(change func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.stats)
}

// leave takes a record that is forgotten out of the counters.
func (g *Generator) leave(r *record) {
	if r.failures > 0 {
		g.note(func(s *Stats) { s.SetAside-- })
	}
}

// noteInspection counts the result of an inspection before it gets into its record.
func (g *Generator) noteInspection(r *record, err error) {
	g.note(func(s *Stats) {
		s.Inspections++
		switch {
		case err != nil:
			s.FailedInspections++
			if r.failures == 0 {
				s.SetAside++
			}
		case r.failures > 0:
			s.SetAside--
		}
	})
}
