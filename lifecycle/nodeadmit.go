package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// EventRecorder records events about pods; client-go's recorder implements it.
type EventRecorder interface {
	Eventf(object apiruntime.Object, eventtype, reason, messageFmt string, args ...any)
}

// NodeObserver holds optional callbacks. They run synchronously and must not
// block.
type NodeObserver struct {
	// Preempted is called after each call of [NodeConfig.Preempt].
	Preempted func(Preemption)
}

// A Preemption describes a pod that was killed for a critical pod.
type Preemption struct {
	// Preemptor is the critical pod, and Victim is the killed pod. They must not
	// be modified.
	Preemptor, Victim *corev1.Pod
	// Resource is the first resource that the node had too little of for
	// Preemptor.
	Resource corev1.ResourceName
	// Err is the error of [NodeConfig.Preempt].
	Err error
}

// NodeConfig configures a [NodeHandler].
type NodeConfig struct {
	// Node returns the node as this agent knows it: its labels, taints and
	// allocatable resources. The handler does not modify the node. Required.
	Node func(context.Context) (*corev1.Node, error)
	// FreshNode reads the node from the API server. It is called if a pod would
	// be rejected only because of the node's labels: the labels that Node
	// returns may be outdated. Default: Node.
	FreshNode func(context.Context) (*corev1.Node, error)
	// OS is the node's operating system. Default: runtime.GOOS.
	OS string
	// Allocated reports whether this node has admitted the pod before. If such
	// a pod also has a start time, the handler does not check the node's labels
	// and taints again, because they may have changed since the first
	// admission. Default: false for every pod.
	Allocated func(*corev1.Pod) bool
	// Preempt kills a victim so that a critical pod fits, and returns when all
	// containers of the victim have ended. KillPod of package podworker does
	// this, with Evict set in its KillOptions. If Preempt returns an error, the
	// handler passes the error to the Observer. It admits the critical pod
	// anyway, because the victim is being terminated. Default: no preemption.
	Preempt func(ctx context.Context, victim *corev1.Pod) error
	// Events receives a warning about each victim. Optional.
	Events EventRecorder
	// Observer receives preemptions. Optional.
	Observer NodeObserver
}

// Validate reports every problem with c, joined.
func (c NodeConfig) Validate() error {
	if c.Node == nil {
		return errors.New("field Node is required")
	}
	return nil
}

// NodeHandler admits the pods that fit on the node. It runs the kubelet's
// checks in the kubelet's order, and preempts pods for critical pods. Create it
// with [NewNodeHandler]. Admit may be called concurrently, but concurrent calls
// do not consider each other's pods.
type NodeHandler struct{ cfg NodeConfig }

// NewNodeHandler returns a NodeHandler. The error reports every problem with
// cfg.
func NewNodeHandler(cfg NodeConfig) (*NodeHandler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: invalid node handler config: %w", err)
	}
	if cfg.FreshNode == nil {
		cfg.FreshNode = cfg.Node
	}
	if cfg.OS == "" {
		cfg.OS = runtime.GOOS
	}
	if cfg.Allocated == nil {
		cfg.Allocated = func(*corev1.Pod) bool { return false }
	}
	if cfg.Observer.Preempted == nil {
		cfg.Observer.Preempted = func(Preemption) {}
	}
	return &NodeHandler{cfg: cfg}, nil
}

// Admit decides by [FitsOS], [FitsGroupsPolicy] and [FitsAll], and returns the
// first reason for a rejection. If [NodeConfig.Preempt] is set and a critical
// pod would be rejected only because of resources, Admit first kills the
// victims that [PlanPreemption] selects among the other pods, one after the
// other. If that pod would also be rejected for another reason, Admit kills no
// pod, and returns the first reason that is not a resource.
func (h *NodeHandler) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	pod := attrs.Pod
	if pod == nil {
		return refuse(UnexpectedAdmissionError, "no pod to admit")
	}
	node, err := h.cfg.Node(ctx)
	if err != nil || node == nil {
		return refuse(InvalidNodeInfo, "Kubelet cannot get node info.")
	}
	for _, m := range []*AdmissionFailure{FitsOS(pod, h.cfg.OS), FitsGroupsPolicy(pod, node)} {
		if m != nil {
			return refuse(m.Reason, m.Message)
		}
	}
	failures := h.admissionFailures(ctx, attrs, node)
	if podspec.IsCritical(pod) {
		if failures, err = h.preempt(ctx, attrs, failures); err != nil {
			return refuse(UnexpectedAdmissionError, fmt.Sprintf(
				"Unexpected error while attempting to recover from admission failure: %v", err))
		}
	}
	if len(failures) > 0 {
		return refuse(failures[0].Reason, failures[0].Message)
	}
	return PodAdmitResult{Admit: true}
}

// admissionFailures returns why the pod cannot be admitted. If the node's
// labels are the only reason for a rejection, it reads the node again with
// FreshNode.
func (h *NodeHandler) admissionFailures(ctx context.Context, attrs PodAdmitAttributes, node *corev1.Node) []AdmissionFailure {
	wasAdmitted := attrs.Pod.Status.StartTime != nil && h.cfg.Allocated(attrs.Pod)
	check := func(node *corev1.Node) (failures []AdmissionFailure) {
		for _, m := range FitsAll(attrs.Pod, attrs.OtherPods, node) {
			if !wasAdmitted || m.Reason != NodeAffinity && m.Reason != TaintToleration {
				failures = append(failures, m)
			}
		}
		return failures
	}
	failures := check(node)
	if len(failures) != 1 || failures[0].Reason != NodeAffinity {
		return failures
	}
	if fresh, err := h.cfg.FreshNode(ctx); err == nil && fresh != nil {
		return check(fresh)
	}
	return failures
}

// preempt kills the pods that must be preempted for a critical pod. It then
// returns no failures. If a failure is not about a resource, preemption does
// not help. preempt then kills no pod, and returns only the failures that are
// not about resources. If Preempt is not set, preempt returns all failures.
func (h *NodeHandler) preempt(ctx context.Context, attrs PodAdmitAttributes, failures []AdmissionFailure) ([]AdmissionFailure, error) {
	if len(failures) == 0 || h.cfg.Preempt == nil {
		return failures, nil
	}
	needs, ok := Needs(failures)
	if !ok {
		var others []AdmissionFailure
		for _, m := range failures {
			if m.Resource == "" {
				others = append(others, m)
			}
		}
		return others, nil
	}
	victims, err := PlanPreemption(attrs.Pod, attrs.OtherPods, needs)
	if err != nil {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: %w", err)
	}
	for _, victim := range victims {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("preemption: %w", err)
		}
		if h.cfg.Events != nil {
			h.cfg.Events.Eventf(victim, corev1.EventTypeWarning, Preempting, "%s", PreemptingMessage)
		}
		h.cfg.Observer.Preempted(Preemption{
			Preemptor: attrs.Pod, Victim: victim, Resource: needs[0].Resource, Err: h.cfg.Preempt(ctx, victim),
		})
	}
	return nil, nil
}
