package podloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// ErrUnknownPod is returned for a pod that has no record.
var ErrUnknownPod = errors.New("the pod is unknown")

// Explain returns why a pod is in its state, and what comes next.
func (l *Loop) Explain(_ context.Context, uid types.UID) (Explanation, error) {
	r, known := l.record(uid)
	if !known {
		return Explanation{}, fmt.Errorf("explain pod %s: %w", uid, ErrUnknownPod)
	}
	x := explainer{r: r, now: l.cfg.Clock.Now(), stopping: l.stopping.Load(), out: Explanation{Pod: l.view(r)}}
	x.silent = l.silent()
	if what, since, late := l.lane.late(); late {
		x.late = fmt.Sprintf("admission handler %s has not returned for %v", what, x.now.Sub(since).Round(time.Second))
	}
	if r.state == Admitted {
		x.waiting = l.runner.Waiting(uid)
		x.restarts, x.pulls = l.delays(&x.out.Pod, x.waiting, x.now)
		x.probes = l.Probes(uid)
		x.due, _ = l.deadline.Due(r.pod)
		x.out.Plan = l.planOf(r.pod, x.out.Pod.Runtime)
	}
	return x.explain(), nil
}

// planOf returns what the next sync of a pod would do in the runtime.
func (l *Loop) planOf(pod *corev1.Pod, observed *podcache.Status) string {
	actions := podrunner.Plan(podrunner.Input{
		Pod: l.allocated(pod), Status: observed, Backoff: l.restarts.Until, Probes: l.probes.results,
	})
	if actions.Empty() && len(actions.Waiting) == 0 {
		return ""
	}
	return strings.TrimSpace(actions.String())
}

// delays returns when waiting containers are restarted, and when their images are pulled again, by
// container.
func (l *Loop) delays(p *Pod, waiting map[string]corev1.ContainerStateWaiting, now time.Time) (restarts, pulls map[string]time.Time) {
	restarts, pulls = map[string]time.Time{}, map[string]time.Time{}
	for c := range podspec.Containers(&p.Spec.Spec) {
		if _, ok := waiting[c.Name]; !ok {
			continue
		}
		if last := p.Runtime.Container(c.Name); last != nil {
			until, _, waits := l.restarts.Until(podrunner.RestartKey(p.Spec, c), time.Unix(0, last.GetFinishedAt()))
			if waits {
				restarts[c.Name] = until
			}
		}
		if at := l.pullAt(p.Spec.UID, c.Image); at.After(now) {
			pulls[c.Name] = at
		}
	}
	return restarts, pulls
}

// pullAt returns when the back-off of an image's pull is over. Zero: there is none.
func (l *Loop) pullAt(uid types.UID, image string) (at time.Time) {
	for _, s := range l.pulls.Snapshot() {
		pulled, ours := strings.CutPrefix(s.Key, string(uid)+"_")
		if !ours || !strings.HasPrefix(pulled, image) {
			continue
		}
		last := s.Started
		if s.Ended.After(last) {
			last = s.Ended
		}
		if due := last.Add(s.Delay); due.After(at) {
			at = due
		}
	}
	return at
}

// explainer has what is known of a pod, and puts it into words.
type explainer struct {
	r   record
	now time.Time
	// silent names the sources that have not answered. Nil: all have.
	silent error
	// late is an admission handler that does not return. Empty: none.
	late string
	// stopping reports that StopPods has been called.
	stopping bool
	// The rest is of admitted pods. waiting has why containers are not started, restarts and
	// pulls when that is tried again.
	waiting         map[string]corev1.ContainerStateWaiting
	restarts, pulls map[string]time.Time
	probes          []Probe
	// due is when the active deadline is over. Zero: there is none.
	due time.Time

	out Explanation // has the pod with its status
}

func (x *explainer) explain() Explanation {
	switch x.r.state {
	case Offered:
		x.sources()
		x.offered()
	case Refused:
		x.refused()
	case Admitted:
		x.sources()
		x.admitted()
	case Ending:
		x.sources()
		x.ending()
	case Ended, Removed:
		x.ended()
	case Gone:
		x.because("%s", x.r.why)
	}
	slices.SortStableFunc(x.out.Next, func(a, b Step) int { return a.At.Compare(b.At) })
	return x.out
}

func (x *explainer) because(format string, args ...any) {
	x.out.Why = append(x.out.Why, fmt.Sprintf(format, args...))
}

// then adds a step. What is due already comes as soon as possible.
func (x *explainer) then(at time.Time, format string, args ...any) {
	if !at.After(x.now) {
		at = time.Time{}
	}
	x.out.Next = append(x.out.Next, Step{At: at, What: fmt.Sprintf(format, args...)})
}

// sources explains that not every source has answered.
func (x *explainer) sources() {
	if x.silent != nil {
		x.because("%s", x.silent)
	}
}
