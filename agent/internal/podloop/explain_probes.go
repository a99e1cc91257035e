package podloop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/prober"
)

// Defaults of the API server for fields of a probe.
const (
	defaultFailures  = 3
	defaultSuccesses = 1
	defaultPeriod    = 10
)

// probeSince returns the probe with only the runs since start. Earlier runs belong to an earlier
// container.
func probeSince(p Probe, start time.Time) Probe {
	p.Runs = slices.DeleteFunc(slices.Clone(p.Runs), func(r prober.Record) bool { return r.At.Before(start) })
	return p
}

// probe explains a probe of a running container, and adds its next run.
func (x *explainer) probe(p Probe) {
	if text := p.trouble(); text != "" {
		x.because("%s %s", p.title(), text)
	}
	decided := p.Kind == prober.Startup && p.Result == prober.Success || // a successful startup probe does not run again
		p.Kind != prober.Readiness && p.Result == prober.Failure // the container is killed
	if len(p.Runs) == 0 || decided {
		return
	}
	period := time.Duration(positive(p.Spec.PeriodSeconds, defaultPeriod)) * time.Second
	x.then(p.Runs[len(p.Runs)-1].At.Add(period), "%s runs%s", p.title(), p.threat())
}

func (p Probe) title() string {
	return fmt.Sprintf("the %s probe of container %s", strings.ToLower(p.Kind.String()), p.Container)
}

// trouble describes why the probe's result is not Success, or why its last run was not successful.
// It returns an empty string if the result and the last run are successful.
func (p Probe) trouble() string {
	n, failed, more := p.streak()
	switch {
	case p.Kind == prober.Startup && p.Result == prober.Success:
		return ""
	case len(p.Runs) == 0 && p.Result == prober.Success:
		return ""
	case len(p.Runs) == 0:
		return "has not run yet"
	case p.Runs[len(p.Runs)-1].Outcome == prober.Errored:
		return "could not be run" + p.output()
	case failed && p.Result == prober.Failure:
		return "has failed" + p.output()
	case failed:
		return fmt.Sprintf("fails, %s%d of %d failures%s", ifMore(more, "at least "), n, positive(p.Spec.FailureThreshold, defaultFailures), p.output())
	case p.Result != prober.Success:
		return fmt.Sprintf("succeeds, %s%d of %d successes", ifMore(more, "at least "), n, positive(p.Spec.SuccessThreshold, defaultSuccesses))
	default:
		return ""
	}
}

// threat describes the consequence of further failures. It returns an empty string if the last
// run has not failed, or if the probe has failed already.
func (p Probe) threat() string {
	n, failed, more := p.streak()
	if !failed || p.Result == prober.Failure {
		return ""
	}
	left := max(1, positive(p.Spec.FailureThreshold, defaultFailures)-n)
	failures := fmt.Sprintf("%s%d more failures", ifMore(more, "at most "), left)
	if left == 1 { // singular, and not "at most", because at least one more failure is needed
		failures = "1 more failure"
	}
	if p.Kind == prober.Readiness {
		return fmt.Sprintf("; after %s the container counts as not ready", failures)
	}
	return fmt.Sprintf("; after %s the container is killed", failures)
}

// streak returns the number of the last runs in a row that had the same outcome, and whether
// these runs failed. The third result reports whether the row may be longer, because earlier runs
// are no longer stored. Runs that could not be carried out are skipped.
func (p Probe) streak() (n int32, failed, more bool) {
	for _, r := range slices.Backward(p.Runs) {
		if r.Outcome == prober.Errored {
			continue
		}
		bad := r.Outcome == prober.Failed
		if n > 0 && bad != failed {
			return n, failed, false
		}
		n, failed = n+1, bad
	}
	return n, failed, len(p.Runs) >= probeHistory
}

func ifMore(more bool, words string) string {
	if more {
		return words
	}
	return ""
}

// output returns the output of the last run, with a separator.
func (p Probe) output() string {
	if text := strings.TrimSpace(p.Runs[len(p.Runs)-1].Output); text != "" {
		return ": " + text
	}
	return ""
}

func positive(n, standard int32) int32 {
	if n <= 0 {
		return standard
	}
	return n
}
