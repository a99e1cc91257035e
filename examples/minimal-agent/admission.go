package main

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// newAdmission wires what decides whether a pod may start here.
func (a *agent) newAdmission() error {
	fits, err := lifecycle.NewNodeHandler(lifecycle.NodeConfig{Node: a.self, OS: "linux", Events: a.events})
	if err != nil {
		return err
	}
	a.admission, err = lifecycle.NewChain(lifecycle.ChainConfig{Handlers: []lifecycle.NamedHandler{
		{Name: "supported", Handler: lifecycle.AdmitFunc(a.admitSupported)},
		{Name: "runnable", Handler: lifecycle.AdmitFunc(a.admitRunnable)},
		{Name: "node", Handler: fits},
		{Name: "pressure", Handler: lifecycle.AdmitFunc(a.admitUnderPressure)},
	}})
	a.deadline = lifecycle.ActiveDeadline{Status: a.statuses.GetPodStatus}
	return err
}

// admitSupported refuses a pod whole that asks for what nobody here does: without
// that it would be another pod.
func (a *agent) admitSupported(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if err := a.runner.Unsupported(attrs.Pod); err != nil {
		return lifecycle.PodAdmitResult{Reason: "UnsupportedFields", Message: err.Error()}
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// admitRunnable refuses what this node's runtime and kernel can't run.
func (a *agent) admitRunnable(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	node := podrunner.Node{Policy: a.opts.policies.Pods, Facts: a.nodeFacts()}
	if r, ok := errors.AsType[*podrunner.Refusal](podrunner.Admit(attrs.Pod, node)); ok {
		return lifecycle.PodAdmitResult{Reason: r.Reason, Message: r.Message}
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// mayStart asks for the pod beside the others that hold something of the node. Callers
// hold mu: one pod at a time. A pod that has ended, under this agent or the one before,
// does not start again, and a refusal would overwrite the status of its end.
func (a *agent) mayStart(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) lifecycle.PodAdmitResult {
	if a.hasEnded(pod.UID) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return a.admission.Admit(ctx, lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation})
}

// active returns the pods that hold something of the node. Callers hold mu.
func (a *agent) active() []*corev1.Pod {
	return slices.DeleteFunc(a.wanted(), func(p *corev1.Pod) bool { return a.hasEnded(p.UID) })
}

// hasEnded says whether a pod that was admitted has ended for good. The phase alone does
// not tell: it is Failed for a pod that was refused, and for one that awaits the sweep it
// may be that of its earlier life. Callers hold mu.
func (a *agent) hasEnded(uid types.UID) bool {
	return podspec.IsTerminal(a.statuses.PodPhase(uid)) && !a.rejected[uid] && !a.awaitsSweep[uid]
}

func (a *agent) isRejected(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rejected[uid]
}
