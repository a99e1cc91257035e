package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// desired takes the pods that are wanted from here on and tells the workers
// what is new, changed and gone.
func (a *agent) desired(ctx context.Context, pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return
	}
	asked := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		asked[p.UID] = true
	}
	for _, p := range a.pods.GetPods() {
		if !asked[p.UID] {
			a.dismiss(p) // before the others come: they may need its place
		}
	}
	active := a.active()
	for _, p := range pods {
		if ctx.Err() != nil {
			return
		}
		before, known := a.pods.GetPodByUID(p.UID)
		why := podworker.Change
		switch {
		case !known:
			why = podworker.Create
			a.enter(p)
		case before.Annotations[podspec.HashAnnotation] != p.Annotations[podspec.HashAnnotation]:
			a.pods.UpdatePod(p)
			active = slices.DeleteFunc(active, func(other *corev1.Pod) bool { return other.UID == p.UID })
		default:
			continue
		}
		a.admit(ctx, p, why, active)
		if !a.rejected[p.UID] && !a.hasEnded(p.UID) {
			active = append(active, p)
		}
	}
	// Until then what runs and is not asked for may be of a source that is silent.
	if a.ready = len(a.merge.Unanswered()) == 0; a.ready {
		a.sourcesRead(pods)
	}
	a.syncClasses(ctx, a.wanted())
	a.sweep.Trigger()
	a.eviction.Trigger() // which waits for them
}

// enter makes a pod one that is desired.
func (a *agent) enter(pod *corev1.Pod) {
	delete(a.leaving, pod.UID)
	a.pods.AddPod(pod)
	if a.sweepBegins(pod.UID) {
		a.awaitsSweep[pod.UID] = true
	}
}

// sweepBegins says whether the sweep starts a new pod, which it does when nothing is
// left of an earlier life. What is there when the agent starts, the agent adopts: running
// or ended.
func (a *agent) sweepBegins(uid types.UID) bool {
	return a.ready || a.workers.IsPodTerminationRequested(uid)
}

// dismiss ends a pod that no manifest asks for any more. That it was refused is known
// until the sweep forgets its status: it may come back before that.
func (a *agent) dismiss(pod *corev1.Pod) {
	a.pods.RemovePod(pod)
	a.leaving[pod.UID] = pod
	delete(a.awaitsSweep, pod.UID)
	if !a.rejected[pod.UID] { // else it never ran, or its worker was told already
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
	}
}

// admit hands the pod to its worker, or refuses it.
func (a *agent) admit(ctx context.Context, pod *corev1.Pod, why podworker.UpdateType, others []*corev1.Pod) {
	result := a.mayStart(ctx, pod, others)
	if ctx.Err() != nil {
		return // the agent stops: the next one decides
	}
	if result.Admit && a.rejected[pod.UID] {
		delete(a.rejected, pod.UID)
		if a.sweepBegins(pod.UID) {
			a.awaitsSweep[pod.UID] = true
		} else {
			a.statuses.RemovePodStatus(pod.UID)
		}
		why = podworker.Create
	}
	switch {
	case result.Admit && why == podworker.Create:
		a.create(pod)
		return
	case result.Admit && a.workers.ShouldPodBeFinished(pod.UID):
		return // it has ended; if it is to begin again, the sweep begins this version
	case result.Admit:
		a.workers.UpdatePod(podworker.Update{Type: why, Pod: pod})
		return
	}
	a.node.metrics.Rejected(result.Reason)
	a.rejected[pod.UID] = true
	if a.awaitsSweep[pod.UID] {
		a.statuses.RemovePodStatus(pod.UID) // or a pod that has succeeded could not fail
		delete(a.awaitsSweep, pod.UID)
	}
	before, _ := a.statuses.GetPodStatus(pod.UID)
	a.setStatus(pod, refused(pod, before, result))
	if why == podworker.Change { // an earlier version of it may run
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
	}
}

// rejectedMessage is how the message of a pod that was refused begins, as the kubelet's does.
const rejectedMessage = "Pod was rejected: "

// refused is the status of a pod that is not admitted. What was said of an earlier
// version of it stays: its containers may run until they are stopped.
func refused(pod *corev1.Pod, before corev1.PodStatus, why lifecycle.PodAdmitResult) corev1.PodStatus {
	before.Phase, before.Reason, before.Message = corev1.PodFailed, why.Reason, rejectedMessage+why.Message
	before.QOSClass = podspec.QOSClass(pod)
	return before
}

// create starts a pod, unless the sweep does. A worker that still ends an earlier life
// of the pod makes a note of it.
func (a *agent) create(pod *corev1.Pod) {
	if !a.awaitsSweep[pod.UID] || a.workers.IsPodTerminationRequested(pod.UID) {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	}
}

// problems are the manifests' problems and the pods that two sources define, for
// /healthz?verbose. They make nobody unhealthy: the other pods go on.
func (a *agent) problems() []string {
	var lines []string
	for _, p := range a.manifestProblems() {
		lines = append(lines, p.Error())
	}
	for _, c := range a.merge.Conflicts() {
		lines = append(lines, c.String())
	}
	return lines
}

func (a *agent) manifestProblems() []podsource.Problem {
	problems := a.source.Problems()
	if a.url != nil {
		problems = append(problems, a.url.Problems()...)
	}
	return problems
}

// sourceReady returns why the manifests have not been read, nil if they have.
func (a *agent) sourceReady() error {
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	if ready {
		return nil
	}
	if problems := a.source.Problems(); len(problems) > 0 {
		return problems[0] // the folder's
	}
	return errNotKnownYet
}
