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

// Errors of hooks.
var (
	// ErrContainerExited is the cause of the cancellation of a hook whose
	// container has ended.
	ErrContainerExited = errors.New("the container has exited")
	// ErrSleepTerminated is the error of a sleep that was interrupted, in the
	// kubelet's words.
	ErrSleepTerminated = errors.New("container terminated before sleep hook finished")
)

// ExecRunner runs a command in a container; cri.RuntimeService implements it.
// The timeout is in whole seconds, and 0 means no timeout. ExecSync must return
// soon after ctx is done.
type ExecRunner interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout []byte, stderr []byte, err error)
}

// HTTPDoer sends a request; *http.Client implements it.
type HTTPDoer interface {
	Do(req *http.Request) (*http.Response, error)
}

// HookKind is the kind of a hook.
type HookKind string

// Kinds of hooks.
const (
	// PostStart hooks run as soon as their container has started.
	PostStart HookKind = "postStart"
	// PreStop hooks run before their container is stopped.
	PreStop HookKind = "preStop"
)

// Hook describes one run of a hook.
type Hook struct {
	// Kind selects the hook of the container. Required.
	Kind HookKind
	// Pod and Container are the owners of the hook. They are not modified.
	// Required.
	Pod       *corev1.Pod
	Container *corev1.Container
	// ContainerID is the runtime's ID of the container, for exec.
	ContainerID string
	// PodIP is the address for HTTP hooks that name no host.
	PodIP string
	// Deadline is the time at which the hook is cancelled. A preStop hook and
	// the stop of its container share one Deadline. Required: a hook without a
	// deadline could block its pod for ever.
	Deadline *Deadline
	// Exited is closed when the container ends. The hook is then cancelled.
	// Optional.
	Exited <-chan struct{}
}

// HookResult is the result of a hook.
type HookResult struct {
	// Err is nil after success and for a container that does not have the hook.
	// For a cancelled hook it wraps [ErrDeadline], [ErrContainerExited] or the
	// cause of the context.
	Err error
	// Message is the text that the kubelet logs about Err, with the output. It
	// must not be used in events, because the output may hold secrets.
	Message string
}

// HookInfo describes a hook to a [HookObserver].
type HookInfo struct {
	Hook
	// Result and Elapsed are set only in calls of Ended.
	Result  HookResult
	Elapsed time.Duration
}

// HookObserver holds optional callbacks. They run synchronously and must not
// block. A caller can store the calls of Started and Ended, to know after a
// restart of the agent which hooks have run. The kubelet does not store this.
type HookObserver struct {
	// Started is called before each run of a hook, and Ended after it. They are
	// also called if the hook is not started because its deadline has passed,
	// its container has ended, or the context is done. They are not called if
	// the container does not have the hook or the Hook is invalid.
	Started, Ended func(HookInfo)
	// HTTPFallback is called when an HTTPS hook succeeded in plain HTTP
	// (kubelet_lifecycle_handler_http_fallbacks_total).
	HTTPFallback func(HookInfo)
	// SleepTerminated is called when a sleep was interrupted
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(HookInfo)
}

// Defaults of a [HookConfig].
const (
	// DefaultOutputs is the number of outputs that are recorded.
	DefaultOutputs = 64
	// DefaultOutputBytes is the number of bytes of each output that are
	// recorded.
	DefaultOutputBytes = 4 << 10
)

// HookConfig configures a [HookRunner].
type HookConfig struct {
	// Exec runs commands. If nil, exec hooks fail.
	Exec ExecRunner
	// HTTP sends requests. Default: a client without keep-alive, proxy or
	// certificate verification, which follows redirects within one host.
	HTTP HTTPDoer
	// Dial opens the connections of the default HTTP client. Default: a
	// [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is sent by HTTP hooks that set no User-Agent. Default
	// "kube-lifecycle/kubeparts".
	UserAgent string
	// FailOnStatus makes a hook fail if the HTTP status is not 2xx or 3xx. By
	// default, and in the kubelet, any response is a success
	// (kubernetes#56963).
	FailOnStatus bool
	// Outputs is the number of hook outputs that are recorded, default
	// [DefaultOutputs]. OutputBytes is how many bytes at the end of each output
	// are recorded, default [DefaultOutputBytes].
	Outputs, OutputBytes int
	// Redact removes secrets from an output before the output is recorded or
	// put into a message. It may modify its argument. Default: no change.
	Redact func([]byte) []byte
	// Events receives warnings about failed hooks. Optional.
	Events EventRecorder
	// Clock is the time source for sleeps and durations. Default the system
	// clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer is notified of hooks. Optional.
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

// HookRunner runs the hooks of containers. Create it with [NewHookRunner]. It
// is safe for concurrent use.
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
	return &HookRunner{cfg: cfg, outputs: &outputRing{size: cfg.Outputs}}, nil
}

// Run runs the hook and returns when the hook has ended. It cancels the hook at
// its deadline, when its container ends, or when parent is done. If the
// container does not have the hook, Run returns at once. Run records the
// kubelet's event about a failed hook. It does not record an event if the
// caller has cancelled parent, or if the container of a preStop hook has ended.
// No goroutine outlives the call.
func (r *HookRunner) Run(parent context.Context, h Hook) HookResult {
	handler, err := h.handler()
	if err != nil || handler == nil {
		return HookResult{Err: err}
	}
	ctx, cancelDeadline := h.Deadline.Context(parent)
	defer cancelDeadline()
	ctx, cancelExited := untilExited(ctx, h.Exited)
	defer cancelExited()

	info, start := HookInfo{Hook: h}, r.cfg.Clock.Now()
	r.cfg.Observer.Started(info)
	var output []byte
	var what string
	if err = ctx.Err(); err == nil { // start the hook only if its context is not done yet
		output, what, err = r.run(ctx, info, handler)
	}
	output = r.cut(output)
	if err != nil {
		info.Result = HookResult{Err: h.causeOf(ctx, err), Message: h.message(what, handler.Exec != nil, err, output)}
		r.cfg.Logger.InfoContext(ctx, "lifecycle hook of a container failed", "hook", string(h.Kind), "pod", h.Pod.Namespace+"/"+h.Pod.Name,
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

// handler returns the handler to run, or nil if the container does not have the
// hook.
func (h Hook) handler() (*corev1.LifecycleHandler, error) {
	if h.Pod == nil || h.Container == nil || h.Deadline == nil {
		return nil, errors.New("a hook needs a Pod, a Container and a Deadline")
	}
	lc := h.Container.Lifecycle
	switch {
	case h.Kind != PostStart && h.Kind != PreStop:
		return nil, fmt.Errorf("unknown kind of hook %q", h.Kind)
	case lc == nil:
		return nil, nil
	case h.Kind == PostStart:
		return lc.PostStart, nil
	default:
		return lc.PreStop, nil
	}
}

// run runs the handler. The second result names the handler in messages.
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
	default: // also tcpSocket, which is in the API but not implemented by the kubelet
		return nil, "", fmt.Errorf("invalid handler: %v", handler)
	}
}

func (r *HookRunner) exec(ctx context.Context, h Hook, command []string) ([]byte, error) {
	if r.cfg.Exec == nil {
		return nil, errors.New("exec hooks are not configured")
	}
	// The timeout ends after the deadline, so usually ctx ends the call. At the
	// timeout the runtime kills the process, even if the agent no longer waits
	// for it.
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

// causeOf returns err, wrapped in the cause of ctx if ctx is done. The runtime
// detects the end of a container before the agent does. A command that fails
// because its container has ended may therefore return before Exited is closed.
// The hook then counts as failed, not as cancelled.
func (h Hook) causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// message returns the text that the kubelet logs about a failed hook.
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

// event records an event about a failed hook. If parent is done for a reason
// other than the deadline or the end of the container, the caller has cancelled
// the hook, and no event is recorded. If the container of a preStop hook has
// ended, no event is recorded either.
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
