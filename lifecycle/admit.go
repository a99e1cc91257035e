package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// AdmitOperation is what a pod asks to be admitted for.
type AdmitOperation string

// Operations. The empty one is [AddOperation].
const (
	// AddOperation is a pod that wants to start.
	AddOperation AdmitOperation = "add"
	// ResizeOperation is a running pod that wants other resources.
	ResizeOperation AdmitOperation = "resize"
)

// PodAdmitAttributes is what an [AdmitHandler] decides upon. Nothing in it may be
// modified or kept.
type PodAdmitAttributes struct {
	// Pod wants to be admitted. Required.
	Pod *corev1.Pod
	// OtherPods are all pods that hold something of the node, without Pod. A
	// decision is good as long as they stay the same: who admits several pods
	// does so one after the other.
	OtherPods []*corev1.Pod
	// Operation is what Pod wants to be admitted for.
	Operation AdmitOperation
}

// PodAdmitResult is a verdict. The zero value refuses, without saying why.
type PodAdmitResult struct {
	// Admit says that the pod may start.
	Admit bool
	// Reason is one word in CamelCase and Message a sentence, for the pod's
	// status and for an event. Both are empty for an admitted pod.
	Reason, Message string
}

// AdmitHandler decides whether a pod may start on this node. It may be called
// for several pods at once unless its maker says otherwise.
type AdmitHandler interface {
	Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult
}

// AdmitFunc is a function that is an [AdmitHandler].
type AdmitFunc func(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult

// Admit calls f.
func (f AdmitFunc) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	return f(ctx, attrs)
}

// NamedHandler is an [AdmitHandler] under the name by which an [AdmitObserver]
// knows it.
type NamedHandler struct {
	// Name tells handlers of one chain apart. Required.
	Name string
	// Handler decides. Required.
	Handler AdmitHandler
}

// AdmitInfo is what a [Chain] reports of one handler's decision.
type AdmitInfo struct {
	// Handler is the name of the handler that was asked.
	Handler string
	// Pod is the pod it was asked about. It must not be modified.
	Pod *corev1.Pod
	// Result is what it said, after how long.
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
	// Handlers are asked in this order. The kubelet puts eviction before
	// resources and [NodeHandler], and node shutdown last. None admits all.
	Handlers []NamedHandler
	// Clock measures how long handlers take. Default the system clock.
	Clock clock.PassiveClock
	// Observer sees every decision. Optional.
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
			errs = append(errs, fmt.Errorf("field Handlers[%d].Name: %q is there already", i, h.Name))
		}
		if h.Handler == nil {
			errs = append(errs, fmt.Errorf("field Handlers[%d].Handler is required", i))
		}
		seen[h.Name] = true
	}
	return errors.Join(errs...)
}

// Chain asks its handlers one after the other; the first refusal is the verdict.
// It is an [AdmitHandler] itself. Make it with [NewChain]; it may be used by any
// number of goroutines if its handlers may.
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

// Admit returns the first refusal, or that the pod is admitted. A pod that is nil
// and a ctx that is done are refused as [UnexpectedAdmissionError], the latter
// because a handler that was not asked has not agreed.
func (c *Chain) Admit(ctx context.Context, attrs PodAdmitAttributes) PodAdmitResult {
	if attrs.Pod == nil {
		return refuse(UnexpectedAdmissionError, "there is no pod to admit")
	}
	for _, h := range c.cfg.Handlers {
		if err := ctx.Err(); err != nil {
			return refuse(UnexpectedAdmissionError, fmt.Sprintf("admission was cut short: %v", err))
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
