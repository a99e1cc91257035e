package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// AdmitOperation is the operation for which a pod requests admission.
type AdmitOperation string

// Operations. The empty value means [AddOperation].
const (
	// AddOperation is the start of a new pod.
	AddOperation AdmitOperation = "add"
	// ResizeOperation is a change of the resources of a running pod.
	ResizeOperation AdmitOperation = "resize"
)

// PodAdmitAttributes is the input of an [AdmitHandler]. The handler must
// neither modify nor retain the attributes.
type PodAdmitAttributes struct {
	// Pod is the pod to admit. Required.
	Pod *corev1.Pod
	// OtherPods are all pods that use resources of the node, except Pod. A
	// decision is valid only until these pods change. A caller must therefore
	// admit pods one after the other.
	OtherPods []*corev1.Pod
	// Operation is the operation to admit.
	Operation AdmitOperation
}

// PodAdmitResult is the decision of an [AdmitHandler]. The zero value rejects
// the pod without a reason.
type PodAdmitResult struct {
	// Admit reports whether the pod may start or, for [ResizeOperation],
	// whether the pod may be resized.
	Admit bool
	// Reason is one word in CamelCase, and Message is a sentence. The caller
	// uses both in the pod's status and in an event. Both are empty for an
	// admitted pod.
	Reason, Message string
}

// AdmitHandler decides whether a pod may start or be resized on this node. An
// implementation must either support concurrent calls of Admit or document that
// it does not support them.
type AdmitHandler interface {
	Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult
}

// AdmitFunc is a function that implements [AdmitHandler].
type AdmitFunc func(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult

// Admit calls f.
func (f AdmitFunc) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	return f(ctx, attrs)
}

// NamedHandler is an [AdmitHandler] with a name for the [AdmitObserver].
type NamedHandler struct {
	// Name identifies the handler within its chain. Required.
	Name string
	// Handler makes the decision. Required.
	Handler AdmitHandler
}

// AdmitInfo describes the decision of one handler of a [Chain].
type AdmitInfo struct {
	// Handler is the name of the handler.
	Handler string
	// Pod is the pod that was checked. It must not be modified.
	Pod *corev1.Pod
	// Result is the decision, and Elapsed is how long the handler took.
	Result  PodAdmitResult
	Elapsed time.Duration
}

// AdmitObserver holds optional callbacks. They run synchronously and must not
// block.
type AdmitObserver struct {
	// Asked is called after each handler's decision.
	Asked func(AdmitInfo)
}

// ChainConfig configures a [Chain].
type ChainConfig struct {
	// Handlers are called in the order of the list. The kubelet's order is:
	// evictions, allocation of CPUs, memory and devices (topology manager), the
	// checks of [NodeHandler], node shutdown. An empty list admits every pod.
	Handlers []NamedHandler
	// Clock measures how long handlers take. Default the system clock.
	Clock clock.PassiveClock
	// Observer receives every decision. Optional.
	Observer AdmitObserver
}

// Validate reports every problem with c, joined.
func (c ChainConfig) Validate() error {
	var errs []error
	seen := map[string]bool{}
	for i, h := range c.Handlers {
		if h.Name == "" {
			errs = append(errs, fmt.Errorf("field Handlers[%d].Name is required", i))
		}
		if h.Name != "" && seen[h.Name] {
			errs = append(errs, fmt.Errorf("field Handlers[%d].Name: %q is used twice", i, h.Name))
		}
		if h.Handler == nil {
			errs = append(errs, fmt.Errorf("field Handlers[%d].Handler is required", i))
		}
		seen[h.Name] = true
	}
	return errors.Join(errs...)
}

// Chain calls its handlers one after the other and returns the first rejection.
// A Chain is itself an [AdmitHandler]. Create it with [NewChain]. It is safe
// for concurrent use if all its handlers are.
type Chain struct{ cfg ChainConfig }

// NewChain returns a Chain. The error reports every problem with cfg.
func NewChain(cfg ChainConfig) (*Chain, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: invalid chain config: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Observer.Asked == nil {
		cfg.Observer.Asked = func(AdmitInfo) {}
	}
	cfg.Handlers = append([]NamedHandler(nil), cfg.Handlers...)
	return &Chain{cfg: cfg}, nil
}

// Admit returns the first rejection, or a result with Admit set. If the pod is
// nil, or if ctx is done before all handlers were called, Admit rejects the pod
// with [UnexpectedAdmissionError].
func (c *Chain) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	if attrs.Pod == nil {
		return refuse(UnexpectedAdmissionError, "no pod to admit")
	}
	for _, h := range c.cfg.Handlers {
		if err := ctx.Err(); err != nil {
			return refuse(UnexpectedAdmissionError, fmt.Sprintf("admission was cancelled: %v", err))
		}
		start := c.cfg.Clock.Now()
		result := h.Handler.Admit(ctx, attrs)
		c.cfg.Observer.Asked(AdmitInfo{Handler: h.Name, Pod: attrs.Pod, Result: result, Elapsed: c.cfg.Clock.Since(start)})
		if !result.Admit {
			return result
		}
	}
	return PodAdmitResult{Admit: true}
}

func refuse(reason, message string) PodAdmitResult {
	return PodAdmitResult{Reason: reason, Message: message}
}
