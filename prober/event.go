package prober

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Reasons of events, as the kubelet has them.
const (
	// ReasonUnhealthy is for a run that failed or could not be made.
	ReasonUnhealthy = "Unhealthy"
	// ReasonProbeWarning is for one that succeeded with a warning.
	ReasonProbeWarning = "ProbeWarning"
)

// counts says whether an error counts as a failure.
func (e ErrorPolicy) counts(err error) bool {
	switch e {
	case CountErrors:
		return true
	case CountNotFound:
		return errors.Is(err, ErrCommandNotFound)
	case IgnoreErrors:
		return false
	default:
		return false
	}
}

// event is what there is to say of a run, if anything.
type event struct {
	worth bool
	f     finding
	// run of limit is how far the failures are below the threshold.
	run, limit int32
}

// worth says what event a run is worth. It needs mu.
func (m *Manager) worth(p *probe, r *run, f finding, changed bool, now time.Time) event {
	e := event{f: f}
	before := p.told
	if f.outcome == Succeeded {
		// Not told, but if it fails again, that is news unless it is often so.
		return e
	}
	p.told = f.outcome
	quiet := !p.toldAt.IsZero() && now.Sub(p.toldAt) < m.cfg.EventPeriod
	if m.cfg.EventPolicy == EventsOnChange && !changed && quiet && before == f.outcome {
		return e
	}
	if c := p.count; f.outcome == Failed && m.cfg.EventPolicy == EventsOnChange && !r.manual &&
		c.run > 0 && c.last == Failure && c.run < r.timing.of(Failure) {
		e.run, e.limit = c.run, r.timing.of(Failure)
	}
	e.worth, p.toldAt = true, now
	return e
}

// emit records e, without any lock.
func (m *Manager) emit(r *run, e event) {
	if !e.worth || m.cfg.Events == nil {
		return
	}
	reason, message := ReasonUnhealthy, ""
	switch k := r.key.Kind; e.f.outcome {
	case Failed:
		message = fmt.Sprintf("%s probe failed: %s", k, e.f.output)
	case Errored:
		message = fmt.Sprintf("%s probe errored and resulted in unknown state: %v", k, e.f.err)
	case Warned:
		reason, message = ReasonProbeWarning, fmt.Sprintf("%s probe warning: %s", k, e.f.output)
	case Succeeded:
		return
	}
	if e.limit > 0 {
		message += fmt.Sprintf(" (%d/%d)", e.run, e.limit)
	}
	m.cfg.Events.Eventf(podspec.ContainerReference(r.pod, r.container.Name), corev1.EventTypeWarning, reason, "%s", message)
}
