package podloop

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle"
)

func (x *explainer) offered() {
	x.because("it waits for admission: %s", x.r.why)
	if x.r.refusal != (lifecycle.PodAdmitResult{}) {
		x.because("it was not admitted before: %s", answer(x.r.refusal))
	}
	if x.late != "" {
		x.because("%s", x.late)
	}
	if x.stopping {
		x.because("the pods of the node are being stopped")
		return
	}
	x.then(time.Time{}, "the admission handlers are asked about it")
}

func (x *explainer) refused() {
	x.because("it was not admitted: %s", answer(x.r.refusal))
	switch {
	case x.r.working:
		x.then(time.Time{}, "what an earlier agent started of it is stopped")
	case x.r.static():
		x.then(time.Time{}, "it is asked about again when the node has changed or another pod has ended")
	default:
		x.because("it has failed, and is not asked about again")
	}
}

func answer(r lifecycle.PodAdmitResult) string { return reasonText(r.Reason, r.Message) }

// reasonText joins a reason and its message, of which one may be empty.
func reasonText(reason, message string) string {
	return strings.Trim(reason+": "+strings.TrimSpace(message), ": ")
}

// admitted explains a pod that is kept running: what keeps it from being ready, then the rest.
func (x *explainer) admitted() {
	x.edit()
	x.status()
	x.containers()
	if len(x.out.Why) == 0 {
		x.because("all its containers run and are ready")
	}
	if x.r.adopted {
		x.because("it ran before this agent began")
	}
	if !x.due.IsZero() {
		x.then(x.due, "its active deadline (%d s) is over, and it is stopped", ptr.Deref(x.r.pod.Spec.ActiveDeadlineSeconds, 0))
	}
}

// edit explains a newer definition that does not count yet.
func (x *explainer) edit() {
	switch {
	case x.r.newer == nil:
	case x.r.refusal == (lifecycle.PodAdmitResult{}):
		x.because("it was changed, and the version before the change runs on until the change is admitted")
	default:
		x.because("its change is not admitted, and the version before it runs on: %s", answer(x.r.refusal))
	}
}

// status explains the pod by the reason in its status, such as Evicted.
func (x *explainer) status() {
	if s := &x.out.Pod.Spec.Status; s.Reason != "" || s.Message != "" {
		x.because("%s", reasonText(cmp.Or(s.Reason, string(s.Phase)), s.Message))
	}
}

func (x *explainer) ending() {
	x.because("%s", x.r.why)
	x.status()
	x.ends()
	if x.r.leaving() {
		x.then(time.Time{}, "its containers are stopped, and what is left of it is removed")
	} else {
		x.then(time.Time{}, "its containers are stopped")
	}
	x.then(x.r.since.Add(x.grace()), "its grace period is over, and what still runs is killed")
	x.comesBack()
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

// ended explains a pod of which nothing runs and nothing will.
func (x *explainer) ended() {
	x.because("%s", x.r.why)
	x.status()
	x.ends()
	if x.r.state == Ended && x.r.leaving() {
		x.then(time.Time{}, "what is left of it is removed")
	}
	switch policy := x.r.pod.Spec.RestartPolicy; {
	case x.r.again:
		x.comesBack()
	case x.r.source == "" || x.r.remove == deleted:
	case x.r.stopped:
		x.because("the pods of the node were stopped; the next agent starts it again")
	case x.out.Pod.Spec.Status.Reason == "" && (policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure):
		x.because("it does not run again: its restart policy is %s", policy)
	default:
		x.because("a pod that has ended does not run again")
	}
}

func (x *explainer) comesBack() {
	if x.r.again {
		x.then(time.Time{}, "it begins again when nothing is left of its earlier life")
	}
}

// ends explains how containers have ended.
func (x *explainer) ends() {
	for _, c := range containersOf(x.out.Pod.Spec) {
		if s := c.status; s != nil && s.State.Terminated != nil {
			x.end(c, s.State.Terminated)
		}
	}
}

// end explains the end of a container. An init container is to end with exit code 0.
func (x *explainer) end(c containerOf, t *corev1.ContainerStateTerminated) {
	if c.kind != initContainer || t.ExitCode != 0 {
		x.because("%s %s", c.title(), endText(t))
	}
}

// endText is a container's end, such as "ended with exit code 1 (Error) at ...".
func endText(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Signal != 0 {
		text += fmt.Sprintf(" by signal %d", t.Signal)
	}
	if t.Reason != "" {
		text += fmt.Sprintf(" (%s)", t.Reason)
	}
	if !t.FinishedAt.IsZero() {
		text += " at " + t.FinishedAt.UTC().Format(time.RFC3339)
	}
	if m := strings.TrimSpace(t.Message); m != "" {
		text += ": " + m
	}
	return text
}
