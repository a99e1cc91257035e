package kubeletapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/internal/describe"
	"github.com/kubeparts/kubeparts/eviction"
)

const (
	// measureTimeout is how long /agent/status waits for measurements of a slow runtime.
	measureTimeout = 2 * time.Second
	// lastEvents is the maximum number of events of a pod in /agent/status.
	lastEvents = 5
)

// status responds with the state of the whole agent. It measures the node and the pods
// concurrently, so that a runtime that hangs delays the response by only one measureTimeout.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var signals []api.Signal
	var measuring sync.WaitGroup
	measuring.Go(func() { signals = s.signals(ctx) })
	used := s.usage(ctx)
	measuring.Wait()
	out := api.Status{
		Now: s.cfg.Clock.Now(), Agent: s.cfg.Info(), Runtime: s.cfg.Runtime,
		Managers: s.managers(), Signals: signals, Pods: []api.Pod{},
	}
	if node := s.cfg.Agent.Node(); node != nil {
		out.Node = *node
	}
	for _, p := range s.cfg.Agent.Pods() {
		out.Pods = append(out.Pods, describe.Pod(s.podFacts(p, used)))
	}
	for _, p := range s.cfg.Problems() {
		out.Problems = append(out.Problems, p.Error())
	}
	writeJSON(w, out)
}

// managers returns the state of the agent's parts, as in /readyz?verbose.
func (s *Server) managers() []api.Manager {
	all := []api.Manager{}
	for _, c := range s.readyzChecks()[1:] { // without the first check, ping, which is not a part of the agent
		m := api.Manager{Name: c.Name, OK: true}
		if err := c.Run(); err != nil {
			m.OK, m.Message = false, err.Error()
		} else if c.Notes != nil {
			m.Message = strings.Join(c.Notes(), "; ")
		}
		all = append(all, m)
	}
	return all
}

// podFacts returns the facts about a pod.
func (s *Server) podFacts(p agent.Pod, used podUsage) describe.Facts {
	f := describe.Facts{
		Pod: p.Spec, Terminating: p.State == agent.Ending || p.Source == "",
		Usage: used.pods[p.Spec.UID], Containers: used.containers[p.Spec.UID],
		Probes: s.cfg.Agent.Probes(p.Spec.UID),
	}
	if s.cfg.Events != nil {
		f.Events = s.cfg.Events.About("Pod", p.Spec.Namespace, p.Spec.Name, lastEvents)
	}
	return f
}

// signals returns the signals that have a threshold, with their current values. The result is
// empty if the agent does not return a plan within measureTimeout.
func (s *Server) signals(ctx context.Context) []api.Signal {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	decision, err := s.cfg.Agent.PlanEviction(ctx)
	s.logIncomplete(ctx, "eviction", err)
	bySignal := map[eviction.Signal]*api.Signal{}
	for _, r := range decision.Thresholds {
		signal := bySignal[r.Threshold.Signal]
		if signal == nil {
			signal = signalOf(r, decision.At)
			bySignal[r.Threshold.Signal] = signal
		}
		signal.Thresholds = append(signal.Thresholds, api.Threshold{
			Text: string(r.Threshold.Signal) + "<" + r.Threshold.Value.String(), Value: r.Quantity,
			GraceSeconds: r.Threshold.GracePeriod.Seconds(), Since: timeOf(r.Since),
		})
	}
	out := []api.Signal{}
	for _, name := range slices.Sorted(maps.Keys(bySignal)) {
		out = append(out, *bySignal[name])
	}
	return out
}

// signalOf returns a signal without its thresholds. If the signal was not measured, its time is
// nil. If the measurement has no time, the result has the time of the plan.
func signalOf(r eviction.Report, planned time.Time) *api.Signal {
	signal := &api.Signal{Name: string(r.Threshold.Signal), Available: r.Observation.Available, Capacity: r.Observation.Capacity}
	switch {
	case r.State == eviction.Unknown:
	case r.Observation.Time.IsZero():
		signal.Time = timeOf(planned)
	default:
		signal.Time = timeOf(r.Observation.Time)
	}
	return signal
}

// timeOf returns a time for JSON. It returns nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
