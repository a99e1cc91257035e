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
	if x.overdue != "" {
		x.because("%s", x.overdue)
	}
	if x.stopping {
		x.because("the pods of the node are being stopped")
		return
	}
	x.then(time.Time{}, "the admission handlers decide about it")
}

func (x *explainer) refused() {
	x.because("it was not admitted: %s", answer(x.r.refusal))
	switch {
	case x.r.hasWorker:
		x.then(time.Time{}, "the containers that an earlier agent started are stopped")
	case x.r.static():
		x.then(time.Time{}, "admission is retried when the node has changed or another pod has ended")
	default:
		x.because("it has failed, and admission is not retried")
	}
}

func answer(r lifecycle.PodAdmitResult) string { return reasonText(r.Reason, r.Message) }

// reasonText joins a reason and its message. The reason or the message may be empty.
func reasonText(reason, message string) string {
	return strings.Trim(reason+": "+strings.TrimSpace(message), ": ")
}

// admitted explains an admitted pod: first why the pod is not ready, then other facts.
func (x *explainer) admitted() {
	x.edit()
	x.status()
	x.containers()
	if len(x.out.Why) == 0 {
		x.because("all its containers run and are ready")
	}
	if x.r.adopted {
		x.because("it ran before this agent started")
	}
	if !x.due.IsZero() {
		x.then(x.due, "it is stopped because its active deadline (%d s) is over", ptr.Deref(x.r.pod.Spec.ActiveDeadlineSeconds, 0))
	}
}

// edit explains a newer definition that is not in effect yet.
func (x *explainer) edit() {
	switch {
	case x.r.newer == nil:
	case x.r.refusal == (lifecycle.PodAdmitResult{}):
		x.because("its spec was changed, and the previous version keeps running until the change is admitted")
	default:
		x.because("the change of its spec was not admitted, and the previous version keeps running: %s", answer(x.r.refusal))
	}
}

// status adds the reason in the pod's status, such as Evicted.
func (x *explainer) status() {
	if s := &x.out.Pod.Spec.Status; s.Reason != "" || s.Message != "" {
		x.because("%s", reasonText(cmp.Or(s.Reason, string(s.Phase)), s.Message))
	}
}

func (x *explainer) ending() {
	x.because("%s", x.r.why)
	x.status()
	x.containerEnds()
	if x.r.leaving() {
		x.then(time.Time{}, "its containers are stopped, and its remaining data is removed")
	} else {
		x.then(time.Time{}, "its containers are stopped")
	}
	x.then(x.r.since.Add(x.grace()), "its grace period is over, and containers that still run are killed")
	x.comesBack()
}

// grace returns the pod's grace period.
func (x *explainer) grace() time.Duration {
	switch {
	case x.r.grace != nil:
		return *x.r.grace
	case x.r.pod.DeletionGracePeriodSeconds != nil:
		return lifecycle.Seconds(*x.r.pod.DeletionGracePeriodSeconds)
	default:
		return lifecycle.Seconds(ptr.Deref(x.r.pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
}

// ended explains a pod that has ended.
func (x *explainer) ended() {
	x.because("%s", x.r.why)
	x.status()
	x.containerEnds()
	if x.r.state == Ended && x.r.leaving() {
		x.then(time.Time{}, "its remaining data is removed")
	}
	switch policy := x.r.pod.Spec.RestartPolicy; {
	case x.r.restartAfterRemoval:
		x.comesBack()
	case x.r.source == "" || x.r.removalReason == deleted:
	case x.r.stopped:
		x.because("the pods of the node were stopped; it starts again when the agent is started again")
	case x.out.Pod.Spec.Status.Reason == "" && (policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure):
		x.because("it does not run again: its restart policy is %s", policy)
	default:
		x.because("a pod that has ended does not run again")
	}
}

func (x *explainer) comesBack() {
	if x.r.restartAfterRemoval {
		x.then(time.Time{}, "it starts again when its earlier run is completely removed")
	}
}

// containerEnds explains how containers have ended.
func (x *explainer) containerEnds() {
	for _, c := range containersOf(x.out.Pod.Spec) {
		if s := c.status; s != nil && s.State.Terminated != nil {
			x.containerEnd(c, s.State.Terminated)
		}
	}
}

// containerEnd explains the end of a container. For an init container, exit code 0 needs no
// explanation.
func (x *explainer) containerEnd(c containerOf, t *corev1.ContainerStateTerminated) {
	if c.kind != initContainer || t.ExitCode != 0 {
		x.because("%s %s", c.title(), endText(t))
	}
}

// endText describes a container's end, such as "ended with exit code 1 (Error) at ...".
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
