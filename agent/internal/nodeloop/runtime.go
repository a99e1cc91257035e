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
	// runtimePeriod is the time between two status requests to a runtime without problems. With
	// this period and runtimeTimeout, the loop detects a runtime that hangs within 11 s. If the
	// runtime exits, the loop detects this immediately, because the stream of events ends and a
	// relist fails.
	runtimePeriod = 8 * time.Second
	// problemPeriod is the time between two status requests to a runtime with a problem.
	problemPeriod = 2 * time.Second
	// runtimeTimeout is the timeout of a status request. The timeout of the kubelet is two
	// minutes.
	runtimeTimeout = 3 * time.Second
	// runtimeAPI is the CRI version in version requests.
	runtimeAPI = "v1"
)

// ErrRuntimeStatusUnknown is the error of the check "runtime" until the loop has requested the
// runtime's status for the first time.
var ErrRuntimeStatusUnknown = errors.New("the status of the container runtime was not requested yet")

// runtimeState has the last answers of the runtime.
type runtimeState struct {
	mu        sync.Mutex
	listed    bool // the last relist has succeeded
	restarted bool // the runtime's version may have changed
	version   *runtimeapi.VersionResponse
	status    *runtimeapi.StatusResponse
	readyAt   time.Time // last time at which the runtime reported to be ready
}

// checkRuntime gets the runtime's status, computes the node, and returns the time until the
// next check.
func (l *Loop) checkRuntime(ctx context.Context) time.Duration {
	err := l.queryRuntime(ctx)
	if ctx.Err() != nil {
		return problemPeriod // the agent stops: the error is caused by ctx
	}
	before := l.parts.err(partRuntime)
	l.parts.record(partRuntime, err)
	switch {
	case err != nil && (before == nil || errors.Is(before, ErrRuntimeStatusUnknown)):
		l.cfg.Logger.WarnContext(ctx, "the container runtime is not ready, will check again", "retryIn", problemPeriod, "err", err)
	case err == nil && before != nil && !errors.Is(before, ErrRuntimeStatusUnknown):
		l.cfg.Logger.InfoContext(ctx, "the container runtime is ready again")
	}
	l.updateNode(ctx)
	l.node.computed()
	if err != nil {
		return problemPeriod
	}
	return runtimePeriod
}

// RuntimeReady returns why the runtime can't run pods, according to the last status request. It
// returns nil if the runtime can run pods.
func (l *Loop) RuntimeReady() error { return l.parts.err(partRuntime) }

// queryRuntime gets the runtime's status. It returns why the runtime can't run pods, or nil if
// it can.
func (l *Loop) queryRuntime(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	status, err := l.cfg.Runtime.Status(limited, false)
	var version *runtimeapi.VersionResponse
	if err == nil && l.runtime.versionIsOld() {
		version, err = l.cfg.Runtime.Version(limited, runtimeAPI)
	}
	if err != nil {
		l.runtime.failed()
		// Either the client or the runtime may detect that the deadline is over.
		if limited.Err() != nil || grpcstatus.Code(err) == codes.DeadlineExceeded {
			return fmt.Errorf("no answer within %v", runtimeTimeout)
		}
		return err
	}
	l.runtime.answered(status, version, l.cfg.Clock.Now())
	return notReady(status.GetStatus())
}

// notReady returns why the runtime can't run pods according to its status. It returns nil if the
// runtime can run pods.
func notReady(s *runtimeapi.RuntimeStatus) error {
	var errs []error
	for _, c := range s.GetConditions() {
		if (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && !c.GetStatus() {
			errs = append(errs, fmt.Errorf("%s is false: %s: %s", c.GetType(), c.GetReason(), c.GetMessage()))
		}
	}
	return errors.Join(errs...)
}

// answered records an answer. The version is nil if it was not requested.
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

// failed records that the runtime has not answered. When the runtime answers again, it may have
// another version.
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

// Relisted records the result of a relist. If relists start or stop failing, the loop checks the
// runtime immediately.
func (l *Loop) Relisted(err error) {
	if l.runtime.relisted(err) {
		l.runtimeLoop.Trigger()
	}
}

// relisted records the result of a relist, and reports whether it differs from the previous
// result. The node is not ready before the first relist, so the success of the first relist
// counts as a change.
func (r *runtimeState) relisted(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.listed
	r.listed = err == nil
	return r.listed != before
}

// RuntimeName returns the name of the runtime, such as containerd. It is empty until the
// runtime has answered.
func (l *Loop) RuntimeName() string { return l.runtime.answers().Version.GetRuntimeName() }

// answers returns the last answers of the runtime, for the node's status.
func (r *runtimeState) answers() nodestatus.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return nodestatus.Runtime{Version: r.version, Status: r.status, ReadyAt: r.readyAt}
}

// features returns the features of the runtime, and a function that returns the features of a
// handler. The function returns nil for an unknown handler.
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

// handlerOf returns the handler with the same name as a RuntimeClass. It is the default of
// Config.RuntimeHandler.
func (r *runtimeState) handlerOf(class string) (string, error) {
	for _, h := range r.answers().Status.GetRuntimeHandlers() {
		if h.GetName() == class {
			return class, nil
		}
	}
	return "", fmt.Errorf("failed to get RuntimeClass %s: the runtime has no handler of that name", class)
}
