package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

const (
	// runtimePeriod is how often a runtime without problems is asked for its state, so that
	// one that hangs is reported within 11 s. A runtime that ends is noticed at once: its
	// stream of events ends, which makes a relist fail.
	runtimePeriod = 8 * time.Second
	// troublePeriod is the same for a runtime that has a problem.
	troublePeriod = 2 * time.Second
	// runtimePatience is how long the runtime may take to answer. The kubelet waits two
	// minutes.
	runtimePatience = 3 * time.Second
	// runtimeAPI is the version of the CRI that the runtime is asked for.
	runtimeAPI = "v1"
)

// ErrNotAsked is the runtime's problem before it has been asked for its state.
var ErrNotAsked = errors.New("the runtime has not been asked for its state yet")

// runtimeState is what the runtime has answered.
type runtimeState struct {
	mu        sync.Mutex
	listed    bool // the last relist has succeeded
	restarted bool // the runtime may be another version than version
	version   *runtimeapi.VersionResponse
	status    *runtimeapi.StatusResponse
	readyAt   time.Time // when the runtime last answered that it is ready
}

// askRuntime asks the runtime for its state, computes the node and returns when to ask
// again.
func (l *Loop) askRuntime(ctx context.Context) time.Duration {
	err := l.queryRuntime(ctx)
	if ctx.Err() != nil {
		return troublePeriod // the agent stops: the error is not the runtime's
	}
	before := l.parts.err(partRuntime)
	l.parts.record(partRuntime, err)
	switch {
	case err != nil && (before == nil || errors.Is(before, ErrNotAsked)):
		l.cfg.Logger.WarnContext(ctx, "the container runtime is not ready, will ask again", "retryIn", troublePeriod, "err", err)
	case err == nil && before != nil && !errors.Is(before, ErrNotAsked):
		l.cfg.Logger.InfoContext(ctx, "the container runtime is ready again")
	}
	l.renewNode(ctx)
	l.node.computed()
	if err != nil {
		return troublePeriod
	}
	return runtimePeriod
}

// RuntimeReady returns why the runtime cannot run pods by its last answer, nil if it can.
func (l *Loop) RuntimeReady() error { return l.parts.err(partRuntime) }

// queryRuntime returns why the runtime cannot run pods, nil if it can.
func (l *Loop) queryRuntime(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, runtimePatience)
	defer cancel()
	status, err := l.cfg.Runtime.Status(limited, false)
	var version *runtimeapi.VersionResponse
	if err == nil && l.runtime.versionIsOld() {
		version, err = l.cfg.Runtime.Version(limited, runtimeAPI)
	}
	if err != nil {
		l.runtime.failed()
		// The time may be over by our clock or by the runtime's.
		if limited.Err() != nil || grpcstatus.Code(err) == codes.DeadlineExceeded {
			return fmt.Errorf("no answer within %v", runtimePatience)
		}
		return err
	}
	l.runtime.answered(status, version, l.cfg.Clock.Now())
	return notReady(status.GetStatus())
}

// notReady returns why the runtime reports that it cannot run pods, nil if it can.
func notReady(s *runtimeapi.RuntimeStatus) error {
	var errs []error
	for _, c := range s.GetConditions() {
		if (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && !c.GetStatus() {
			errs = append(errs, fmt.Errorf("%s is false: %s: %s", c.GetType(), c.GetReason(), c.GetMessage()))
		}
	}
	return errors.Join(errs...)
}

// answered records an answer. The version is nil if it was not asked for.
func (r *runtimeState) answered(status *runtimeapi.StatusResponse, version *runtimeapi.VersionResponse, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	if version != nil {
		r.version, r.restarted = version, false
	}
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady && c.GetStatus() {
			r.readyAt = now
		}
	}
}

// failed records that the runtime has not answered. It may come back as another version.
func (r *runtimeState) failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarted = true
}

func (r *runtimeState) versionIsOld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version == nil || r.restarted
}

// Relisted records that a relist of the runtime has ended. If relists begin or end to fail,
// the runtime is asked for its state at once.
func (l *Loop) Relisted(err error) {
	if l.runtime.relisted(err) {
		l.ask.Trigger()
	}
}

// relisted records how a relist ended, and reports whether the one before ended otherwise. Before
// the first one the node is not ready, so its success counts too.
func (r *runtimeState) relisted(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.listed
	r.listed = err == nil
	return r.listed != before
}

// RuntimeName returns the name of the runtime, such as containerd, empty until it has
// answered.
func (l *Loop) RuntimeName() string { return l.runtime.answers().Version.GetRuntimeName() }

// answers returns the last answers, for the node's status.
func (r *runtimeState) answers() nodestatus.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return nodestatus.Runtime{Version: r.version, Status: r.status, ReadyAt: r.readyAt}
}

// features returns what the runtime can do, and a function that returns what one of its
// handlers can do, nil for an unknown handler.
func (r *runtimeState) features() (*runtimeapi.RuntimeFeatures, func(handler string) *runtimeapi.RuntimeHandlerFeatures) {
	last := r.answers().Status
	return last.GetFeatures(), func(name string) *runtimeapi.RuntimeHandlerFeatures {
		for _, h := range last.GetRuntimeHandlers() {
			if h.GetName() == name {
				return h.GetFeatures()
			}
		}
		return nil
	}
}

// handlerOf returns the handler of a runtime class: without a cluster each handler is a
// class of its own name.
func (r *runtimeState) handlerOf(class string) (string, error) {
	for _, h := range r.answers().Status.GetRuntimeHandlers() {
		if h.GetName() == class {
			return class, nil
		}
	}
	return "", fmt.Errorf("failed to get RuntimeClass %s: the runtime has no handler of that name", class)
}
