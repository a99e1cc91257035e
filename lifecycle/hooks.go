package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Errors of hooks that a caller tells apart.
var (
	// ErrContainerExited is why a hook was cancelled whose container has ended.
	ErrContainerExited = errors.New("the container has exited")
	// ErrSleepTerminated is what a sleep ends with that was cut short, in the
	// kubelet's words.
	ErrSleepTerminated = errors.New("container terminated before sleep hook finished")
)

// ExecRunner runs a command in a container; cri.RuntimeService fits. A timeout
// counts in whole seconds and 0 is none. It must return soon after ctx is done.
type ExecRunner interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout []byte, stderr []byte, err error)
}

// HTTPDoer sends a request; *http.Client fits.
type HTTPDoer interface {
	Do(req *http.Request) (*http.Response, error)
}

// HookKind is when a hook runs.
type HookKind string

// Kinds of hooks.
const (
	// PostStart hooks run as soon as their container has started.
	PostStart HookKind = "postStart"
	// PreStop hooks run before their container is stopped.
	PreStop HookKind = "preStop"
)

// Hook is one run of a hook.
type Hook struct {
	// Kind is which of the container's hooks. Required.
	Kind HookKind
	// Pod and Container are whose hook it is. They are not modified. Required.
	Pod       *corev1.Pod
	Container *corev1.Container
	// ContainerID is the runtime's, for exec.
	ContainerID string
	// PodIP is where an HTTP hook without a host goes.
	PodIP string
	// Deadline ends the hook; for preStop the one that the container's stop has
	// too. Required: a hook without end would hold its pod for ever.
	Deadline *Deadline
	// Exited is closed when the container ends, which cancels the hook. Optional.
	Exited <-chan struct{}
}

// HookResult is how a hook ended.
type HookResult struct {
	// Err is nil after success and for a container without such a hook. After a
	// cancelled one it wraps [ErrDeadline], [ErrContainerExited] or the cause of
	// the context.
	Err error
	// Message says about Err what the kubelet logs, with the output. It is not
	// for events: it may hold what only the container should know.
	Message string
}

// HookInfo is what an observer learns of a hook.
type HookInfo struct {
	Hook
	// Result and Elapsed are set at the end.
	Result  HookResult
	Elapsed time.Duration
}

// HookObserver holds optional callbacks. They run synchronously and must not
// block. Who records Started and Ended knows after a restart of the agent which
// hooks ran: the kubelet does not.
type HookObserver struct {
	// Started and Ended are called for each hook that there is.
	Started, Ended func(HookInfo)
	// HTTPFallback is called when an HTTPS hook worked in plain HTTP
	// (kubelet_lifecycle_handler_http_fallbacks_total).
	HTTPFallback func(HookInfo)
	// SleepTerminated is called when a sleep was cut short
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(HookInfo)
}

// Defaults of a [HookConfig].
const (
	// DefaultOutputs is how many outputs are kept.
	DefaultOutputs = 64
	// DefaultOutputBytes is how much of each is kept.
	DefaultOutputBytes = 4 << 10
)

// HookConfig configures a [HookRunner].
type HookConfig struct {
	// Exec runs commands. Without it exec hooks fail.
	Exec ExecRunner
	// HTTP sends requests. Default: a client without keep-alive, proxy or
	// verification of certificates, which follows redirects within one host.
	HTTP HTTPDoer
	// Dial makes the connections of the default HTTP. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is sent by HTTP hooks that name none. Default
	// "kube-lifecycle/kubeparts".
	UserAgent string
	// FailOnStatus makes an HTTP answer other than 2xx and 3xx a failure. The
	// kubelet takes any answer for a success (kubernetes#56963), and so does the
	// default.
	FailOnStatus bool
	// Outputs is how many outputs of hooks are kept, [DefaultOutputs] by
	// default, and OutputBytes how much of the end of each, [DefaultOutputBytes]
	// by default.
	Outputs, OutputBytes int
	// Redact changes an output before it is kept or put into a message. It may
	// modify what it gets. Default: nothing is changed.
	Redact func([]byte) []byte
	// Events takes the warnings about hooks that failed. Optional.
	Events EventRecorder
	// Clock is the time source for sleeps and durations. Default the system
	// clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer sees hooks. Optional.
	Observer HookObserver
}

// Validate reports every problem with c, joined.
func (c HookConfig) Validate() error {
	var errs []error
	if c.Outputs < 0 {
		errs = append(errs, fmt.Errorf("field Outputs: %d is negative", c.Outputs))
	}
	if c.OutputBytes < 0 {
		errs = append(errs, fmt.Errorf("field OutputBytes: %d is negative", c.OutputBytes))
	}
	return errors.Join(errs...)
}

func (c HookConfig) withDefaults() HookConfig {
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.HTTP == nil {
		c.HTTP = hookClient(c.Dial)
	}
	if c.UserAgent == "" {
		c.UserAgent = "kube-lifecycle/kubeparts"
	}
	if c.Outputs == 0 {
		c.Outputs = DefaultOutputs
	}
	if c.OutputBytes == 0 {
		c.OutputBytes = DefaultOutputBytes
	}
	if c.Redact == nil {
		c.Redact = func(b []byte) []byte { return b }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, f := range []*func(HookInfo){
		&c.Observer.Started, &c.Observer.Ended, &c.Observer.HTTPFallback, &c.Observer.SleepTerminated,
	} {
		if *f == nil {
			*f = func(HookInfo) {}
		}
	}
	return c
}

// HookRunner runs the hooks of containers. Make it with [NewHookRunner]; all
// methods may be called by any number of goroutines.
type HookRunner struct {
	cfg     HookConfig
	outputs *outputRing
}

// NewHookRunner returns a HookRunner. The error reports every problem with cfg.
func NewHookRunner(cfg HookConfig) (*HookRunner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: invalid hook config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &HookRunner{cfg: cfg, outputs: &outputRing{keep: cfg.Outputs}}, nil
}

// Run runs the hook and returns when it has ended: by itself, at its deadline,
// with its container, or because parent is done. A container without such a hook
// needs none. A failure is recorded as the event that the kubelet has for it; a
// hook that was cancelled by parent, and a preStop hook whose container has ended,
// have not failed. No goroutine outlives the call.
func (r *HookRunner) Run(parent context.Context, h Hook) HookResult {
	handler, err := h.handler()
	if err != nil || handler == nil {
		return HookResult{Err: err}
	}
	ctx, cancelDeadline := h.Deadline.Context(parent)
	defer cancelDeadline()
	ctx, cancelExited := until(ctx, h.Exited)
	defer cancelExited()

	info, start := HookInfo{Hook: h}, r.cfg.Clock.Now()
	r.cfg.Observer.Started(info)
	var output []byte
	var what string
	if err = ctx.Err(); err == nil { // what is over before it begins does not begin
		output, what, err = r.run(ctx, info, handler)
	}
	output = r.cut(output)
	if err != nil {
		info.Result = HookResult{Err: h.why(ctx, err), Message: h.message(what, handler.Exec != nil, err, output)}
		r.cfg.Logger.InfoContext(ctx, "hook failed", "hook", string(h.Kind), "pod", h.Pod.Namespace+"/"+h.Pod.Name,
			"podUID", h.Pod.UID, "container", h.Container.Name, "err", info.Result.Err)
	}
	info.Elapsed = r.cfg.Clock.Since(start)
	r.outputs.add(HookOutput{
		PodUID: h.Pod.UID, Container: h.Container.Name, Kind: h.Kind,
		Start: start, Elapsed: info.Elapsed, Output: string(output), Err: info.Result.Err,
	})
	r.event(parent, h, info.Result.Err)
	r.cfg.Observer.Ended(info)
	return info.Result
}

// handler returns what is to be run, nil if there is nothing.
func (h Hook) handler() (*corev1.LifecycleHandler, error) {
	if h.Pod == nil || h.Container == nil || h.Deadline == nil {
		return nil, errors.New("a hook needs a Pod, a Container and a Deadline")
	}
	lc := h.Container.Lifecycle
	switch {
	case h.Kind != PostStart && h.Kind != PreStop:
		return nil, fmt.Errorf("there is no hook %q", h.Kind)
	case lc == nil:
		return nil, nil
	case h.Kind == PostStart:
		return lc.PostStart, nil
	default:
		return lc.PreStop, nil
	}
}

// run does what the handler says; what names it for a message.
func (r *HookRunner) run(ctx context.Context, info HookInfo, handler *corev1.LifecycleHandler) (output []byte, what string, err error) {
	switch {
	case handler.Exec != nil:
		output, err = r.exec(ctx, info.Hook, handler.Exec.Command)
		return output, fmt.Sprintf("Exec lifecycle hook (%v)", handler.Exec.Command), err
	case handler.HTTPGet != nil:
		output, err = r.httpGet(ctx, info, handler.HTTPGet)
		return output, fmt.Sprintf("HTTP lifecycle hook (%s)", handler.HTTPGet.Path), err
	case handler.Sleep != nil:
		if err = r.sleep(ctx, handler.Sleep.Seconds); err != nil {
			r.cfg.Observer.SleepTerminated(info)
		}
		return nil, fmt.Sprintf("Sleep lifecycle hook (%d)", handler.Sleep.Seconds), err
	default: // tcpSocket too, which the API has kept but nobody runs
		return nil, "", fmt.Errorf("invalid handler: %v", handler)
	}
}

func (r *HookRunner) exec(ctx context.Context, h Hook, command []string) ([]byte, error) {
	if r.cfg.Exec == nil {
		return nil, errors.New("there is nothing to run commands with")
	}
	// The runtime's own timeout, later than ours, kills the process even if nobody
	// waits any more.
	timeout := StopGrace(h.Deadline.Left()) + time.Second
	stdout, stderr, err := r.cfg.Exec.ExecSync(ctx, h.ContainerID, command, timeout)
	return append(stdout, stderr...), err
}

func (r *HookRunner) sleep(ctx context.Context, n int64) error {
	timer := r.cfg.Clock.NewTimer(Seconds(n))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ErrSleepTerminated
	case <-timer.C():
		return nil
	}
}

// why says whether the hook failed or was cancelled. A container's end is noticed
// by its runtime first, so a command that fails with its container may be told
// before the channel is closed; then the hook counts as failed.
func (h Hook) why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// message is what the kubelet logs about a hook that failed.
func (h Hook) message(what string, isExec bool, err error, output []byte) string {
	if what == "" {
		return fmt.Sprintf("Cannot run handler: %v", err)
	}
	pod := fmt.Sprintf("%s_%s(%s)", h.Pod.Name, h.Pod.Namespace, h.Pod.UID)
	text := fmt.Sprintf("%s for Container %q in Pod %q failed - error: %v", what, h.Container.Name, pod, err)
	if len(output) > 0 || isExec {
		text += fmt.Sprintf(", message: %q", output)
	}
	return text
}

// event records a failure. The caller's context may end by the same deadline or
// with the same container; if it ends by anything else, the hook was called off.
func (r *HookRunner) event(parent context.Context, h Hook, err error) {
	cause := context.Cause(parent)
	calledOff := cause != nil && !errors.Is(cause, ErrDeadline) && !errors.Is(cause, ErrContainerExited)
	switch {
	case err == nil || calledOff || r.cfg.Events == nil:
	case h.Kind == PostStart:
		r.cfg.Events.Eventf(podspec.ContainerReference(h.Pod, h.Container.Name), corev1.EventTypeWarning, FailedPostStartHook, "%s", PostStartHookFailedMessage)
	case !errors.Is(err, ErrContainerExited):
		r.cfg.Events.Eventf(podspec.ContainerReference(h.Pod, h.Container.Name), corev1.EventTypeWarning, FailedPreStopHook, "%s", PreStopHookFailedMessage)
	}
}
