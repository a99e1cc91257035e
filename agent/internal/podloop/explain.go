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

// Explain returns why a pod is in its state, and what the agent will do next.
func (l *Loop) Explain(ctx context.Context, uid types.UID) (Explanation, error) {
	r, known := l.record(uid)
	if !known {
		return Explanation{}, fmt.Errorf("explain pod %s: %w", uid, ErrUnknownPod)
	}
	x := explainer{r: r, now: l.cfg.Clock.Now(), stopping: l.stopping.Load(), out: Explanation{Pod: l.view(r)}}
	x.unanswered = l.unanswered()
	if what, since, overdue := l.admissionQueue.overdue(); overdue {
		x.overdue = fmt.Sprintf("admission handler %s has not returned for %v", what, x.now.Sub(since).Round(time.Second))
	}
	if r.state == Admitted {
		x.waiting = l.runner.Waiting(uid)
		x.restarts, x.pulls = l.delays(&x.out.Pod, x.waiting, x.now)
		x.probes = l.Probes(uid)
		x.due, _ = l.deadline.Due(r.pod)
		x.out.Plan = l.planOf(ctx, r.pod, x.out.Pod.Runtime)
	}
	return x.explain(), nil
}

// planOf returns what the next sync of a pod would do in the runtime. It returns an empty string
// if the sync would do nothing and no container waits.
func (l *Loop) planOf(ctx context.Context, pod *corev1.Pod, observed *podcache.Status) string {
	actions := podrunner.Plan(podrunner.Input{
		Pod: l.allocated(pod), Status: observed, Backoff: l.restarts.Until, Probes: l.probes.results,
		Replaced: l.runner.Replaced(ctx, pod.UID),
	})
	if actions.Empty() && len(actions.Waiting) == 0 {
		return ""
	}
	return strings.TrimSpace(actions.String())
}

// delays returns the times at which waiting containers are restarted and their images are
// pulled again, by container name.
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

// pullAt returns the time at which the pull back-off of an image is over. It returns zero if the
// image has no back-off.
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

// explainer has the facts about a pod and describes them.
type explainer struct {
	r   record
	now time.Time
	// unanswered names the sources that have not defined their pods yet. Nil means that all sources
	// have defined their pods.
	unanswered error
	// overdue describes an admission handler that does not return. Empty means that all
	// handlers return in time.
	overdue string
	// stopping reports whether StopPods was called and not cancelled.
	stopping bool
	// The fields from waiting to due are set for admitted pods. The three maps have, by container
	// name, the reasons why containers are not started, and the times of the next restarts and
	// image pulls.
	waiting         map[string]corev1.ContainerStateWaiting
	restarts, pulls map[string]time.Time
	probes          []Probe
	// due is the time of the active deadline. Zero means that the pod has no active deadline.
	due time.Time

	out Explanation // contains the pod with its status
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

// then adds a step. A time in the past means as soon as possible.
func (x *explainer) then(at time.Time, format string, args ...any) {
	if !at.After(x.now) {
		at = time.Time{}
	}
	x.out.Next = append(x.out.Next, Step{At: at, What: fmt.Sprintf(format, args...)})
}

// sources adds the names of the sources that have not defined their pods yet.
func (x *explainer) sources() {
	if x.unanswered != nil {
		x.because("%s", x.unanswered)
	}
}
