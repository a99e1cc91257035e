package prober

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Runner runs commands in containers.
type Runner interface {
	// Exec runs the command and returns the exit code when the command has ended. Exec
	// must return when ctx is done. Like CRI's ExecSync, it should end the command at
	// r.Timeout and then return [context.DeadlineExceeded]. If the command does not exist
	// in the container, the error wraps [ErrCommandNotFound]. Any other error means that
	// the command could not be run.
	Exec(ctx context.Context, r ExecRequest) (exitCode int32, err error)
}

// ExecRequest is a command to run.
type ExecRequest struct {
	// ContainerID is the container's CRI ID.
	ContainerID string
	// Command is the command with its arguments. It must not be modified.
	Command []string
	// Timeout is the time limit. If the runtime accepts whole seconds only, round Timeout
	// up: the Manager enforces the exact limit.
	Timeout time.Duration
	// Output receives the output of the command. Writes never fail; everything after
	// the first 10 KiB is discarded. Only one goroutine may write at a time.
	Output io.Writer
}

// Killer kills commands that are still running after their timeout.
type Killer interface {
	// KillExec is called once for each command that is still running after its timeout, on
	// a separate goroutine. It must return when ctx is done. ctx is done when the command
	// has ended, or after [Config].ExecGrace at the latest.
	KillExec(ctx context.Context, r ExecRequest)
}

// GRPCRequest is a gRPC health check.
type GRPCRequest struct {
	// Address is host and port. An IPv6 address is in brackets.
	Address string
	// Service is the service to check; empty for the whole server.
	Service string
	// TLS means that the connection uses TLS; the certificate is not verified.
	TLS bool
	// Fresh means that the check uses a new connection.
	Fresh bool
	// Timeout is the time limit. The deadline of ctx is the same.
	Timeout time.Duration
}

// GRPC does gRPC health checks. Package grpcprobe contains an implementation.
type GRPC interface {
	// Check returns [Succeeded] or [Failed] and a text for events and logs. It must
	// return when ctx is done.
	Check(ctx context.Context, r GRPCRequest) (Outcome, string)
}

// EventRecorder records Kubernetes events. The recorder of client-go implements it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Options modify how the Manager runs a probe. If a field is zero, the spec of the probe
// applies.
type Options struct {
	// Period, Timeout and InitialDelay replace the values of the spec, which are whole
	// seconds. A negative InitialDelay means no delay.
	Period, Timeout, InitialDelay time.Duration
	// StartPeriod is the time from a run of a startup or readiness probe to the next run,
	// if the run did not succeed and the result is not [Success]. It has no effect if it
	// is longer than the period. It helps the Manager to detect sooner that a container
	// has started.
	StartPeriod time.Duration
	// EdgePeriod is the time between two runs while the last outcomes differ from the
	// result and have not reached the threshold. It has no effect if it is longer than the
	// period. With EdgePeriod, the result changes sooner.
	EdgePeriod time.Duration
	// FreshConnection makes each run of a gRPC probe use a new connection, as in the
	// kubelet. The probe then tests whether a new client can connect. HTTP and TCP probes
	// always use new connections.
	FreshConnection bool
	// GRPCTLS makes a gRPC probe use TLS (KEP-4939).
	GRPCTLS bool
	// Redirects is the policy for redirects in an HTTP probe.
	Redirects RedirectPolicy
	// Statuses are the HTTP status codes that count as success. Any other status is then a
	// failure, including a redirect that is not followed. Default: 200 to 299 succeed, and
	// 300 to 399 succeed with a warning.
	Statuses []StatusRange
}

// StatusRange is a range of HTTP status codes, including First and Last.
type StatusRange struct{ First, Last int }

// RedirectPolicy defines which redirects an HTTP probe follows.
type RedirectPolicy uint8

// The redirect policies.
const (
	// FollowOnHost follows redirects to the same host, like the kubelet. The tenth redirect
	// of a run is a failure.
	FollowOnHost RedirectPolicy = iota
	// FollowNone follows no redirect. The redirect is then the response that the probe
	// evaluates.
	FollowNone
)

// ErrorPolicy defines which runs that end in an error count as failures.
type ErrorPolicy uint8

// The error policies.
const (
	// CountNotFound counts commands that do not exist in the container, because such an
	// error is permanent. It ignores all other errors.
	CountNotFound ErrorPolicy = iota
	// IgnoreErrors ignores all errors, like the kubelet.
	IgnoreErrors
	// CountErrors counts every error.
	CountErrors
)

// EventPolicy defines how often a failing probe causes an event.
type EventPolicy uint8

// The event policies.
const (
	// EventsOnChange records an event for each failure, error or warning that changes the
	// result. It records an event for any other failure, error or warning only if the last
	// event had another outcome, or if EventPeriod has passed since the last event.
	EventsOnChange EventPolicy = iota
	// EventsAlways records an event for every failure, error and warning, like the
	// kubelet.
	EventsAlways
)

// Config configures a [Manager].
type Config struct {
	// Lookup returns the current state of a container, or false if the state is unknown.
	// It is called before each run and during Refresh, and may be called concurrently.
	// Lookup must return quickly, because a run holds its slot during the call. It must
	// not call the Manager. Required.
	Lookup func(uid types.UID, container string) (Target, bool)
	// Runner runs the commands of exec probes. Without Runner, exec probes end in an
	// error.
	Runner Runner
	// Killer is called for commands that are still running after their timeout. Optional.
	Killer Killer
	// GRPC does the checks of gRPC probes. Without GRPC, gRPC probes end in an error.
	GRPC GRPC
	// Dial opens connections for HTTP and TCP probes. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Options returns the options of a probe. [Manager.AddPod] calls it for each probe in
	// the spec; the Manager uses the options only when it adds the probe. Options must
	// return quickly and must not call the Manager. Default: no options.
	Options func(pod *corev1.Pod, container string, kind Kind) Options
	// MaxParallel is the maximum number of probes that run concurrently, not counting exec
	// probes. Default 512.
	MaxParallel int
	// MaxExec is the maximum number of commands that run concurrently. A command that is
	// still running after its timeout does not count. Default 16.
	MaxExec int
	// ExecGrace is how long a command may continue after its timeout before the Manager
	// cancels the context of the command. While the command continues, the Manager does
	// not start it again, and each period counts as a failure. Default 2m.
	ExecGrace time.Duration
	// PollPeriod is the maximum time between two lookups of a container that is not
	// running yet. Calls of [Manager.Refresh] make the lookups unnecessary. Default 1s.
	PollPeriod time.Duration
	// UserAgent is the user agent of HTTP probes. Default "kube-probe/1.36".
	UserAgent string
	// LivenessErrors, ReadinessErrors and StartupErrors are the error policies of each
	// kind. Default CountNotFound.
	LivenessErrors, ReadinessErrors, StartupErrors ErrorPolicy
	// UnreadyOnStop makes all containers of a pod not ready when
	// [Manager.StopLivenessAndStartup] is called, regardless of their probes, so that
	// traffic stops when termination begins. If UnreadyOnStop is not set, containers stay
	// ready as long as their readiness probes succeed, as in the kubelet.
	UnreadyOnStop bool
	// Events receives Unhealthy and ProbeWarning events. Optional.
	Events EventRecorder
	// EventPolicy defines how often events are recorded. Default EventsOnChange.
	EventPolicy EventPolicy
	// EventPeriod is the minimum time between two events of a probe with the same outcome,
	// for EventsOnChange. A failure that changes the result causes an event at any time.
	// Default 5m.
	EventPeriod time.Duration
	// History is the number of runs that the Manager stores for each probe; -1 means that
	// it stores no runs. Default 4. HistoryBytes is the maximum size of the stored output
	// of each run. Default 1024.
	History, HistoryBytes int
	// Clock is the time source for everything except timeouts, which are measured in real
	// time. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives callbacks for metrics and tests. Optional.
	Observer Observer
}

// Run describes a run of a probe.
type Run struct {
	Key
	Record
	// Pod is the probed pod. It must not be modified.
	Pod *corev1.Pod
	// ContainerID is the container's CRI ID.
	ContainerID string
	// Late is the time from when the run was due until it started.
	Late time.Duration
	// Result is the result of the probe after the run.
	Result Result
	// Err is the error of a run whose outcome is [Errored].
	Err error
}

// Observer contains optional callbacks. They are called concurrently, by the goroutines
// that run probes and by methods that remove probes. They must not block.
type Observer struct {
	// RunFinished is called after each run that was not cancelled. With Kind and
	// Outcome as labels it provides the kubelet's prober_probe_total and
	// prober_probe_duration_seconds.
	RunFinished func(Run)
	// ExecOutlived is called when a command is still running at its timeout.
	ExecOutlived func(Key)
	// Removed is called when a probe was removed, so that the agent can delete the probe's
	// metrics. Removed may be called twice for a probe. The last call always follows the
	// last call of RunFinished for the probe.
	Removed func(Key)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Lookup == nil {
		errs = append(errs, errors.New("field Lookup is required"))
	}
	atLeast := func(name string, n, least int) {
		if n < least {
			errs = append(errs, fmt.Errorf("field %s: %d is less than %d", name, n, least))
		}
	}
	atLeast("MaxParallel", c.MaxParallel, 0)
	atLeast("MaxExec", c.MaxExec, 0)
	atLeast("History", c.History, -1)
	atLeast("HistoryBytes", c.HistoryBytes, 0)
	notNegative := func(name string, d time.Duration) {
		if d < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", name, d))
		}
	}
	notNegative("ExecGrace", c.ExecGrace)
	notNegative("PollPeriod", c.PollPeriod)
	notNegative("EventPeriod", c.EventPeriod)
	policy := func(name string, p ErrorPolicy) {
		if p > CountErrors {
			errs = append(errs, fmt.Errorf("field %s: unknown policy %d", name, p))
		}
	}
	policy("LivenessErrors", c.LivenessErrors)
	policy("ReadinessErrors", c.ReadinessErrors)
	policy("StartupErrors", c.StartupErrors)
	if c.EventPolicy > EventsAlways {
		errs = append(errs, fmt.Errorf("field EventPolicy: unknown policy %d", c.EventPolicy))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.MaxParallel = cmp.Or(c.MaxParallel, 512)
	c.MaxExec = cmp.Or(c.MaxExec, 16)
	c.ExecGrace = cmp.Or(c.ExecGrace, 2*time.Minute)
	c.PollPeriod = cmp.Or(c.PollPeriod, time.Second)
	c.UserAgent = cmp.Or(c.UserAgent, "kube-probe/1.36")
	c.EventPeriod = cmp.Or(c.EventPeriod, 5*time.Minute)
	c.History = cmp.Or(c.History, 4)
	c.HistoryBytes = cmp.Or(c.HistoryBytes, 1024)
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Options == nil {
		c.Options = func(*corev1.Pod, string, Kind) Options { return Options{} }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	o := &c.Observer
	if o.RunFinished == nil {
		o.RunFinished = func(Run) {}
	}
	if o.ExecOutlived == nil {
		o.ExecOutlived = func(Key) {}
	}
	if o.Removed == nil {
		o.Removed = func(Key) {}
	}
	return c
}

// policy returns the error policy of kind k.
func (c *Config) policy(k Kind) ErrorPolicy {
	switch k {
	case Liveness:
		return c.LivenessErrors
	case Readiness:
		return c.ReadinessErrors
	case Startup:
		return c.StartupErrors
	default:
		return IgnoreErrors
	}
}
