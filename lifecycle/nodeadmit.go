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

// EventRecorder takes events about pods; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object apiruntime.Object, eventtype, reason, messageFmt string, args ...any)
}

// NodeObserver holds optional callbacks. They run synchronously and must not
// block.
type NodeObserver struct {
	// Preempted is called after a pod was told to go for a critical one, with
	// what came of it.
	Preempted func(preemptor, victim *corev1.Pod, err error)
}

// NodeConfig configures a [NodeHandler].
type NodeConfig struct {
	// Node returns the node as this agent knows it: its labels, taints and
	// allocatable resources. It is not modified. Required.
	Node func(context.Context) (*corev1.Node, error)
	// FreshNode asks whoever keeps the node, when the one from Node has not the
	// labels that a pod wants: they may be newer. Default: Node counts.
	FreshNode func(context.Context) (*corev1.Node, error)
	// OS is the node's operating system. Default that of this process.
	OS string
	// Allocated says that this node has admitted the pod before. Such a pod,
	// once it has a start time, is not sent away after a restart of the agent
	// because labels or taints have changed meanwhile. Default: nobody.
	Allocated func(*corev1.Pod) bool
	// Preempt ends a victim so that a critical pod fits, and returns when
	// nothing of it runs; podworker's KillPod with an eviction does. An error
	// goes to the Observer and the pod is admitted nevertheless: its victim is
	// on its way out. Default: nobody is preempted.
	Preempt func(ctx context.Context, victim *corev1.Pod) error
	// Events takes the warning about each victim. Optional.
	Events EventRecorder
	// Observer sees preemptions. Optional.
	Observer NodeObserver
}

// Validate reports every problem with c, joined.
func (c NodeConfig) Validate() error {
	if c.Node == nil {
		return errors.New("field Node is required")
	}
	return nil
}

// NodeHandler admits the pods that fit on the node, with the kubelet's checks in
// the kubelet's order, and makes room for critical ones. Make it with
// [NewNodeHandler]. It may be called for several pods at once, but then each is
// admitted as if the others were not there.
type NodeHandler struct{ cfg NodeConfig }

// NewNodeHandler returns a NodeHandler. The error reports every problem with cfg.
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
		cfg.Observer.Preempted = func(*corev1.Pod, *corev1.Pod, error) {}
	}
	return &NodeHandler{cfg: cfg}, nil
}

// Admit decides by [FitsOS], [FitsGroupsPolicy] and [FitsAll], and says the first
// reason why not. If a critical pod lacks nothing but resources, the victims of
// [PlanPreemption] among the other pods are ended first, one after the other.
func (h *NodeHandler) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	pod := attrs.Pod
	if pod == nil {
		return refuse(UnexpectedAdmissionError, "there is no pod to admit")
	}
	node, err := h.cfg.Node(ctx)
	if err != nil || node == nil {
		return refuse(InvalidNodeInfo, "Kubelet cannot get node info.")
	}
	for _, m := range []*Misfit{FitsOS(pod, h.cfg.OS), FitsGroupsPolicy(pod, node)} {
		if m != nil {
			return refuse(m.Reason, m.Message)
		}
	}
	misfits := h.misfits(ctx, attrs, node)
	if podspec.IsCritical(pod) {
		if misfits, err = h.makeRoom(ctx, attrs, misfits); err != nil {
			return refuse(UnexpectedAdmissionError, fmt.Sprintf(
				"Unexpected error while attempting to recover from admission failure: %v", err))
		}
	}
	if len(misfits) > 0 {
		return refuse(misfits[0].Reason, misfits[0].Message)
	}
	return PodAdmitResult{Admit: true}
}

// misfits looks at the node again if its labels are all that is wrong.
func (h *NodeHandler) misfits(ctx context.Context, attrs PodAdmitAttributes, node *corev1.Node) []Misfit {
	settled := attrs.Pod.Status.StartTime != nil && h.cfg.Allocated(attrs.Pod)
	look := func(node *corev1.Node) (misfits []Misfit) {
		for _, m := range FitsAll(attrs.Pod, attrs.OtherPods, node) {
			if !settled || m.Reason != NodeAffinity && m.Reason != TaintToleration {
				misfits = append(misfits, m)
			}
		}
		return misfits
	}
	misfits := look(node)
	if len(misfits) != 1 || misfits[0].Reason != NodeAffinity {
		return misfits
	}
	if fresh, err := h.cfg.FreshNode(ctx); err == nil && fresh != nil {
		return look(fresh)
	}
	return misfits
}

// makeRoom returns what stays wrong for a critical pod. Resources don't once its
// victims were told to go; where something else is wrong nobody has to.
func (h *NodeHandler) makeRoom(ctx context.Context, attrs PodAdmitAttributes, misfits []Misfit) ([]Misfit, error) {
	if len(misfits) == 0 || h.cfg.Preempt == nil {
		return misfits, nil
	}
	needs, ok := Needs(misfits)
	if !ok {
		var others []Misfit
		for _, m := range misfits {
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
		h.cfg.Observer.Preempted(attrs.Pod, victim, h.cfg.Preempt(ctx, victim))
	}
	return nil, nil
}
