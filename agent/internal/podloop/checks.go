package podloop

import (
	"fmt"
	"time"
)

// Checks returns the state of each part in a fixed order.
func (l *Loop) Checks() []Check {
	return []Check{l.checkPLEG(), l.checkSources(), l.checkAdmission(), l.checkWorkers(), {Name: "probes"}, l.checkStatuses()}
}

func (l *Loop) checkPLEG() Check {
	s := l.pleg.Stats()
	note := fmt.Sprintf("lists the runtime's pods every %v and receives no container events", s.Period)
	if s.Streaming {
		note = fmt.Sprintf("lists the runtime's pods every %v and receives container events", s.Period)
	}
	return Check{Name: "pleg", Err: l.pleg.Healthy(), Notes: []string{note}}
}

func (l *Loop) checkSources() Check {
	c := Check{Name: "sources", Err: l.unanswered()}
	for _, d := range l.filters {
		c.Notes = append(c.Notes, d.notes()...)
	}
	for _, conflict := range l.merge.Conflicts() {
		c.Notes = append(c.Notes, conflict.String())
	}
	return c
}

// checkAdmission reports a handler that does not return although its context is done. While this
// handler runs, no pod is admitted.
func (l *Loop) checkAdmission() Check {
	c := Check{Name: "admission"}
	if what, since, overdue := l.admissionQueue.overdue(); overdue {
		c.Fatal = true
		c.Err = fmt.Errorf("admission handler %s has not returned for %v, and no pod is admitted until it does",
			what, l.cfg.Clock.Since(since).Round(time.Second))
	}
	return c
}

func (l *Loop) checkWorkers() Check {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Check{Name: "workers", Notes: []string{fmt.Sprintf("%d pods", len(l.records))}}
}

func (l *Loop) checkStatuses() Check {
	c := Check{Name: "statuses"}
	if note := l.unpublished.note(); note != "" {
		c.Notes = []string{note}
	}
	return c
}
