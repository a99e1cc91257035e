package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// runtimePeriod is how often the runtime is asked how it is, as the kubelet does.
const runtimePeriod = 5 * time.Second

// plegEvent wakes the worker of a pod in which something changed.
func (a *agent) plegEvent(_ context.Context, e pleg.Event) {
	pod, known := a.pods.GetPodByUID(e.PodUID)
	if !known {
		a.sweep.Trigger()
		return
	}
	if e.Type != pleg.ContainerRemoved {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
	}
}

// relisted notes at once when the runtime stops answering, or answers again.
func (a *agent) relisted(err error) {
	switch known := a.runtime.get(); {
	case err != nil && !errors.Is(err, context.Canceled):
		a.runtime.set(err)
	case err == nil && known != nil && !errors.Is(known, errRuntimeNotReady):
		a.runtime.set(nil)
	}
}

// errRuntimeNotReady is what a runtime says of itself.
var errRuntimeNotReady = errors.New("the runtime is not ready")

// askRuntime asks the runtime whether it and its network are ready.
func (a *agent) askRuntime(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, runtimePeriod)
	defer cancel()
	answer, err := a.node.cri.Status(ctx, false)
	if err == nil {
		for _, c := range answer.GetStatus().GetConditions() {
			if (c.GetType() == "RuntimeReady" || c.GetType() == "NetworkReady") && !c.GetStatus() {
				err = errors.Join(err, fmt.Errorf("%w: %s: %s: %s", errRuntimeNotReady, c.GetType(), c.GetReason(), c.GetMessage()))
			}
		}
	}
	if ctx.Err() != context.Canceled {
		a.runtime.set(err)
	}
	return runtimePeriod
}

// generate computes a pod's status from what is known now.
func (a *agent) generate(pod *corev1.Pod, observed *podcache.Status, terminal bool) corev1.PodStatus {
	previous, _ := a.statuses.GetPodStatus(pod.UID)
	return status.Generate(status.Input{
		Pod:         pod,
		Runtime:     observed,
		RuntimeName: a.node.runtimeName,
		Previous:    previous,
		Terminal:    terminal,
		Waiting:     a.runner.Waiting(pod.UID),
		NodeIPs:     a.hostIPs,
		Now:         time.Now(),
	})
}

func (a *agent) setStatus(pod *corev1.Pod, s corev1.PodStatus) corev1.PodStatus {
	stored, _ := a.statuses.SetPodStatus(pod, s)
	return stored
}

// podsWithStatus returns copies of the desired pods with their latest status.
func (a *agent) podsWithStatus() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range a.pods.GetPods() {
		shown := *p
		if s, ok := a.statuses.GetPodStatus(p.UID); ok {
			shown.Status = s
		}
		out = append(out, &shown)
	}
	return out
}
