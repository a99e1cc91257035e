package podloop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Explain returns why a pod is in its state, and what comes next.
func (l *Loop) Explain(_ context.Context, uid types.UID) (Explanation, error) {
	r, known := l.record(uid)
	if !known {
		return Explanation{}, fmt.Errorf("explain pod %s: unknown pod", uid)
	}
	x := explainer{Loop: l, r: r, now: l.cfg.Clock.Now(), out: Explanation{Pod: l.view(r)}}
	x.state()
	x.edit()
	if r.state == Admitted {
		x.containers()
		x.activeDeadline()
		x.plan()
	}
	slices.SortStableFunc(x.out.Next, func(a, b Step) int { return a.At.Compare(b.At) })
	return x.out, nil
}

type explainer struct {
	*Loop
	r   record
	now time.Time
	out Explanation
}

func (x *explainer) because(format string, args ...any) {
	x.out.Why = append(x.out.Why, fmt.Sprintf(format, args...))
}

func (x *explainer) then(at time.Time, format string, args ...any) {
	x.out.Next = append(x.out.Next, Step{At: at, What: fmt.Sprintf(format, args...)})
}

// state explains the state of the record.
func (x *explainer) state() {
	switch x.r.state {
	case Offered:
		x.because("it waits for admission: %s", x.r.why)
		if what, since, late := x.lane.late(); late {
			x.because("admission handler %s has not returned for %v", what, x.now.Sub(since).Round(time.Second))
		}
		if x.stopping.Load() {
			x.because("the pods of the node are being stopped")
			return
		}
		x.then(time.Time{}, "admission is asked")
	case Refused:
		x.because("%s: %s", x.r.refusal.Reason, x.r.refusal.Message)
		switch {
		case x.r.working:
			x.then(time.Time{}, "what an earlier agent started of it is stopped")
		case x.r.static():
			x.then(time.Time{}, "it is asked about again when the node has changed or another pod has ended")
		}
	case Admitted:
		if x.r.adopted {
			x.because("it ran before this agent began")
		}
	case Ending:
		x.because("%s", x.r.why)
		x.then(time.Time{}, "its containers are stopped")
		x.then(x.r.since.Add(x.grace()), "its grace period is over, and what still runs is killed")
		x.comesBack()
	case Ended:
		x.because("%s", x.r.why)
		if x.r.leaving() {
			x.then(time.Time{}, "what is left of it is removed")
		}
		x.comesBack()
	case Removed, Gone:
		x.because("%s", x.r.why)
	}
}

// grace returns what the pod may take to end.
func (x *explainer) grace() time.Duration {
	switch {
	case x.r.grace != nil:
		return *x.r.grace
	case x.r.pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*x.r.pod.DeletionGracePeriodSeconds) * time.Second
	default:
		return time.Duration(ptr.Deref(x.r.pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
	}
}

func (x *explainer) comesBack() {
	if x.r.again {
		x.then(time.Time{}, "it begins again when nothing is left of its earlier life")
	}
}

// edit explains a newer definition that does not count yet.
func (x *explainer) edit() {
	switch {
	case x.r.state != Admitted || x.r.newer == nil:
	case x.r.refusal == (lifecycle.PodAdmitResult{}):
		x.because("it was changed, and the version before the change goes on until that is admitted")
	default:
		x.because("its change is not admitted, and the version before it goes on: %s: %s", x.r.refusal.Reason, x.r.refusal.Message)
	}
}

// containers explains which containers wait.
func (x *explainer) containers() {
	waiting := x.runner.Waiting(x.r.uid)
	for c := range podspec.Containers(&x.r.pod.Spec) {
		w, ok := waiting[c.Name]
		if !ok {
			continue
		}
		x.because("container %s waits: %s", c.Name, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
		if at, ok := x.restartAt(c); ok {
			x.then(at, "container %s is restarted", c.Name)
		}
		if at, ok := x.pullAt(c); ok {
			x.then(at, "the image of container %s is pulled again", c.Name)
		}
	}
}

// restartAt returns when a container that backs off is restarted.
func (x *explainer) restartAt(c *corev1.Container) (time.Time, bool) {
	last := x.out.Pod.Runtime.Container(c.Name)
	if last == nil {
		return time.Time{}, false
	}
	until, _, waits := x.restarts.Until(podrunner.RestartKey(x.r.pod, c), time.Unix(0, last.GetFinishedAt()))
	return until, waits
}

// pullAt returns when the image of a container is pulled again.
func (x *explainer) pullAt(c *corev1.Container) (at time.Time, ok bool) {
	for _, s := range x.pulls.Snapshot() {
		image, ours := strings.CutPrefix(s.Key, string(x.r.uid)+"_")
		if !ours || !strings.HasPrefix(image, c.Image) {
			continue
		}
		last := s.Started
		if s.Ended.After(last) {
			last = s.Ended
		}
		if due := last.Add(s.Delay); due.After(x.now) && due.After(at) {
			at, ok = due, true
		}
	}
	return at, ok
}

func (x *explainer) activeDeadline() {
	if due, ok := x.deadline.Due(x.r.pod); ok {
		x.then(due, "it has failed if it runs until then: its active deadline is over")
	}
}

// plan adds what the next sync would do.
func (x *explainer) plan() {
	actions := podrunner.Plan(podrunner.Input{
		Pod: x.allocated(x.r.pod), Status: x.out.Pod.Runtime,
		Backoff: x.restarts.Until, Probes: x.probes.results,
	})
	if !actions.Empty() || len(actions.Waiting) > 0 {
		x.out.Plan = actions.String()
	}
}
