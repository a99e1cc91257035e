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
	// Exec runs the command and returns its exit code when it has ended. It must
	// return when ctx is done; until then it should see to it that the command
	// ends at r.Timeout, as CRI's ExecSync does, and return
	// [context.DeadlineExceeded] where it did. A command that is not there is an
	// [ErrCommandNotFound]; any other error is the runner's own.
	Exec(ctx context.Context, r ExecRequest) (exitCode int32, err error)
}

// ExecRequest is a command to run.
type ExecRequest struct {
	// ContainerID is the container's CRI id.
	ContainerID string
	// Command is what to run, with its arguments. It is not to be modified.
	Command []string
	// Timeout is how long it may take. One that a runtime takes in whole seconds
	// is to be rounded up: the exact one is kept here.
	Timeout time.Duration
	// Output takes what the command writes. It never fails, and forgets what is
	// more than 10 KiB. Only one goroutine may write at a time.
	Output io.Writer
}

// Killer ends commands that have outlived their timeout.
type Killer interface {
	// KillExec is called once for each such command, from a goroutine of its own,
	// and must return when ctx is done, within the run's grace.
	KillExec(ctx context.Context, r ExecRequest)
}

// GRPCRequest is a health check by gRPC.
type GRPCRequest struct {
	// Address is host and port, the former possibly an IPv6 address in brackets.
	Address string
	// Service is what to ask for, possibly nothing.
	Service string
	// TLS asks for an encrypted connection; the certificate is not verified.
	TLS bool
	// Fresh asks for a connection of its own.
	Fresh bool
	// Timeout is how long it may take. The deadline of ctx is it too.
	Timeout time.Duration
}

// GRPC checks health by gRPC. That of the package grpcprobe is one.
type GRPC interface {
	// Check returns [Succeeded] or [Failed] and what there is to say. It must
	// return when ctx is done.
	Check(ctx context.Context, r GRPCRequest) (Outcome, string)
}

// EventRecorder takes events. That of client-go fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Options change how one probe is run. Zero fields leave it as its spec says.
type Options struct {
	// Period, Timeout and InitialDelay replace the whole seconds of the spec.
	// InitialDelay may be negative for none.
	Period, Timeout, InitialDelay time.Duration
	// StartPeriod is the period until the first success, if that is shorter:
	// a container that is quick to start is seen to be.
	StartPeriod time.Duration
	// EdgePeriod is the period from a run that differs from the result until the
	// threshold decides, if that is shorter. Changes are seen sooner, and a
	// threshold spans less time.
	EdgePeriod time.Duration
	// FreshConnection makes each run of a gRPC probe connect anew, as the kubelet
	// does. What is tested then is whether a new client can. HTTP and TCP probes
	// always connect anew.
	FreshConnection bool
	// GRPCTLS makes a gRPC probe use TLS (KEP-4939).
	GRPCTLS bool
	// Redirects says which redirects an HTTP probe follows.
	Redirects RedirectPolicy
	// Statuses are the HTTP statuses that are a success; any other is a failure then,
	// a redirect that is not followed included. Default: 200 to 299, and with a
	// warning 300 to 399.
	Statuses []StatusRange
}

// StatusRange is the HTTP statuses from First to Last, both included.
type StatusRange struct{ First, Last int }

// RedirectPolicy says which redirects an HTTP probe follows.
type RedirectPolicy uint8

// The policies.
const (
	// FollowOnHost follows up to ten redirects to the same host, like the kubelet.
	FollowOnHost RedirectPolicy = iota
	// FollowNone follows none: the redirect is the answer.
	FollowNone
)

// ErrorPolicy says which runs that end in an error count as failures.
type ErrorPolicy uint8

// The policies.
const (
	// CountNotFound counts commands that are not in the container, which will not
	// get better by themselves, and ignores all else.
	CountNotFound ErrorPolicy = iota
	// IgnoreErrors counts none, like the kubelet.
	IgnoreErrors
	// CountErrors counts every error.
	CountErrors
)

// EventPolicy says how often a failing probe is an event.
type EventPolicy uint8

// The policies.
const (
	// EventsOnChange makes an event of the failure that reaches the threshold, of
	// the first one below it and, while it goes on, of one in EventPeriod.
	EventsOnChange EventPolicy = iota
	// EventsAlways makes an event of every failure, like the kubelet.
	EventsAlways
)

// Config configures a [Manager].
type Config struct {
	// Lookup says what is known of a container now, and whether anything is. It is
	// called before each run, may be called by several goroutines at a time, and
	// must be quick: other probes wait. It must not call the Manager. Required.
	Lookup func(uid types.UID, container string) (Target, bool)
	// Runner runs the commands of exec probes. Without one they end in an error.
	Runner Runner
	// Killer is told of commands that have outlived their timeout. Optional.
	Killer Killer
	// GRPC checks for gRPC probes. Without it they end in an error.
	GRPC GRPC
	// Dial makes connections for HTTP and TCP probes. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Options returns the options of a probe; it is asked when that is added.
	// Default: none. Same rules as for Lookup.
	Options func(pod *corev1.Pod, container string, kind Kind) Options
	// MaxParallel is the number of probes that run at a time, exec probes not
	// counted. Default 512.
	MaxParallel int
	// MaxExec is the number of commands that run at a time. One that has outlived
	// its timeout does not count any more. Default 16.
	MaxExec int
	// ExecGrace is how long a command may go on after its timeout before its context is
	// cancelled. Until then it is not started again, and each period counts as a failure.
	// Default 2m.
	ExecGrace time.Duration
	// PollPeriod is the longest time between two looks at a container that is not
	// running yet, which [Manager.Refresh] spares. Default 1s.
	PollPeriod time.Duration
	// UserAgent is that of HTTP probes. Default "kube-probe/1.36".
	UserAgent string
	// LivenessErrors, ReadinessErrors and StartupErrors are the policies of each
	// kind. Default CountNotFound.
	LivenessErrors, ReadinessErrors, StartupErrors ErrorPolicy
	// UnreadyOnStop makes all containers of a pod not ready when
	// [Manager.StopLivenessAndStartup] is called, whatever their probes would say:
	// traffic ends with the beginning of the end. Otherwise they are ready for as
	// long as they answer, as in the kubelet.
	UnreadyOnStop bool
	// Events receives Unhealthy and ProbeWarning events. Optional.
	Events EventRecorder
	// EventPolicy says how many. Default EventsOnChange.
	EventPolicy EventPolicy
	// EventPeriod is for EventsOnChange. Default 5m.
	EventPeriod time.Duration
	// History is the number of runs remembered of each probe, -1 for none.
	// Default 4. HistoryBytes bounds the output of each. Default 1024.
	History, HistoryBytes int
	// Clock is the time source of all but timeouts, which are real. Default the
	// system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Run is a run of a probe for an [Observer].
type Run struct {
	Key
	Record
	// Pod is the probed pod, not to be modified.
	Pod *corev1.Pod
	// ContainerID is the container's CRI id.
	ContainerID string
	// Late is how much later than it was due it began.
	Late time.Duration
	// Result is what its probe's result was afterwards.
	Result Result
	// Err is why it is Errored.
	Err error
}

// Observer holds optional callbacks. They are called by the goroutines that run
// probes, several at a time, and must not block.
type Observer struct {
	// Probed is called after each run that was not cut short. With Kind and
	// Outcome as labels it is the kubelet's prober_probe_total and
	// prober_probe_duration_seconds.
	Probed func(Run)
	// ExecOutlived is called when a command has not ended at its timeout.
	ExecOutlived func(Key)
	// Removed is called when a probe has been removed, for metrics with its name. It may
	// be called twice: the last call for a probe always follows its last Probed.
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
			errs = append(errs, fmt.Errorf("field %s: no policy has the value %d", name, p))
		}
	}
	policy("LivenessErrors", c.LivenessErrors)
	policy("ReadinessErrors", c.ReadinessErrors)
	policy("StartupErrors", c.StartupErrors)
	if c.EventPolicy > EventsAlways {
		errs = append(errs, fmt.Errorf("field EventPolicy: no policy has the value %d", c.EventPolicy))
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
	if o.Probed == nil {
		o.Probed = func(Run) {}
	}
	if o.ExecOutlived == nil {
		o.ExecOutlived = func(Key) {}
	}
	if o.Removed == nil {
		o.Removed = func(Key) {}
	}
	return c
}

// policy returns how errors of kind k count.
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
