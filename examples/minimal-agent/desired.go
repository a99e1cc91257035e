package main

import (
	"context"

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
	gone := map[types.UID]*corev1.Pod{}
	for _, p := range a.pods.GetPods() {
		gone[p.UID] = p
	}
	for _, p := range pods {
		before, known := gone[p.UID]
		delete(gone, p.UID)
		delete(a.leaving, p.UID)
		switch {
		case !known:
			a.pods.AddPod(p)
			a.admit(ctx, p, podworker.Create)
		case before.Annotations[podspec.HashAnnotation] != p.Annotations[podspec.HashAnnotation]:
			a.pods.UpdatePod(p)
			a.admit(ctx, p, podworker.Change)
		}
	}
	for _, p := range gone {
		a.pods.RemovePod(p)
		a.leaving[p.UID] = p
		delete(a.rejected, p.UID)
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: p})
	}
	// Until then what runs and is not asked for may be of a source that is silent.
	if a.ready = len(a.merge.Unanswered()) == 0; a.ready {
		a.sourcesRead(pods)
	}
	a.syncClasses(ctx, a.wanted())
	a.sweep.Trigger()
	a.eviction.Trigger() // which waits for them
}

// admit hands the pod to its worker, or refuses it.
func (a *agent) admit(ctx context.Context, pod *corev1.Pod, why podworker.UpdateType) {
	result := a.mayStart(ctx, pod)
	if result.Admit && a.rejected[pod.UID] {
		delete(a.rejected, pod.UID)
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
	before, _ := a.statuses.GetPodStatus(pod.UID)
	a.setStatus(pod, refused(pod, before, result))
	if why == podworker.Change { // an earlier version of it may run
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
	}
}

// refused is the status of a pod that is not admitted. What was said of an earlier
// version of it stays: its containers may run until they are stopped.
func refused(pod *corev1.Pod, before corev1.PodStatus, why lifecycle.PodAdmitResult) corev1.PodStatus {
	before.Phase, before.Reason, before.Message = corev1.PodFailed, why.Reason, "Pod was rejected: "+why.Message
	before.QOSClass = podspec.QOSClass(pod)
	return before
}

// create begins a pod. What is there when the agent starts is adopted, running or
// not. Later on a pod may come back while it still ends, and begins again after
// that: its worker makes a note of it, and the sweep does the rest.
func (a *agent) create(pod *corev1.Pod) {
	if !a.ready || a.workers.IsPodTerminationRequested(pod.UID) {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	}
}

// problems are the manifests' problems for /healthz?verbose. They make nobody
// unhealthy: the other pods go on.
func (a *agent) problems() []string {
	var lines []string
	for _, p := range a.manifestProblems() {
		lines = append(lines, p.Error())
	}
	return lines
}

func (a *agent) manifestProblems() []podsource.Problem {
	problems := append(a.source.Problems(), a.merge.Problems()...)
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
