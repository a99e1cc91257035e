package prober

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Reasons of events. They are the kubelet's.
const (
	// ReasonUnhealthy is the reason for a run that failed or ended in an error.
	ReasonUnhealthy = "Unhealthy"
	// ReasonProbeWarning is the reason for a run that succeeded with a warning.
	ReasonProbeWarning = "ProbeWarning"
)

// counts reports whether an error counts as a failure.
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

// event is the Kubernetes event for a run.
type event struct {
	send bool
	f    finding
	// run is the number of consecutive failures, and limit is the threshold. Both are 0 if
	// the message does not contain them.
	run, limit int32
}

// newEvent returns the event for a run. The field send is false if the run causes no
// event. The caller holds mu.
func (m *Manager) newEvent(p *probe, r *run, f finding, changed bool, now time.Time) event {
	e := event{f: f}
	before := p.lastEvent
	if f.outcome == Succeeded {
		// A success causes no event and does not change lastEvent, so that occasional
		// failures cause at most one event per EventPeriod.
		return e
	}
	p.lastEvent = f.outcome
	recent := !p.lastEventAt.IsZero() && now.Sub(p.lastEventAt) < m.cfg.EventPeriod
	if m.cfg.EventPolicy == EventsOnChange && !changed && recent && before == f.outcome {
		return e
	}
	if c := p.count; f.outcome == Failed && m.cfg.EventPolicy == EventsOnChange && !r.manual &&
		c.streak > 0 && c.last == Failure && c.streak < r.timing.of(Failure) {
		e.run, e.limit = c.streak, r.timing.of(Failure)
	}
	e.send, p.lastEventAt = true, now
	return e
}

// emit records e. The caller holds no lock.
func (m *Manager) emit(r *run, e event) {
	if !e.send || m.cfg.Events == nil {
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
		message += fmt.Sprintf(" (failure %d of %d)", e.run, e.limit)
	}
	m.cfg.Events.Eventf(podspec.ContainerReference(r.pod, r.container.Name), corev1.EventTypeWarning, reason, "%s", message)
}
