package kubeletapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/eviction"
)

// Agent is the agent behind the server. *agent.Agent implements it. Requests call the methods
// concurrently, and do not modify the results.
type Agent interface {
	PodReader
	NodeReader
	// Changes returns a channel that gets a message when the result of Pods may have changed. The
	// channel is closed when ctx is done.
	Changes(ctx context.Context) <-chan struct{}
}

// PodReader returns pods, their probes and explanations.
type PodReader interface {
	Pods() []agent.Pod
	Pod(types.UID) (agent.Pod, bool)
	Probes(types.UID) []agent.Probe
	Explain(context.Context, types.UID) (agent.Explanation, error)
}

// NodeReader returns the state of the node and of the agent's parts.
type NodeReader interface {
	Node() *corev1.Node
	Health() []agent.Check
	Summary(context.Context) (*statsapi.Summary, error)
	PlanEviction(context.Context) (eviction.Decision, error)
	Plan(context.Context) (agent.Plan, error)
}

// Config configures a [Server]. Requests call the functions and handlers concurrently.
type Config struct {
	// Agent is the agent behind the server. Required.
	Agent Agent

	// Info returns the name and the version of the agent for /agent/status. Default: an empty value.
	Info func() api.Agent
	// Runtime is the container runtime for /agent/status.
	Runtime api.Runtime
	// Events is the log of events. If Events is nil, /agent/events does not exist, and
	// /agent/status and /agent/explain show no events.
	Events Events
	// PodLogs is the directory of the logs of all pods, as in [agent.Config].PodLogs. If
	// PodLogs is empty, /containerLogs does not exist.
	PodLogs string
	// Problems returns the problems of manifests for /agent/status and /agent/explain. Optional.
	Problems func() []Problem
	// Checks are additional checks of the program. /healthz, /readyz and /agent/status list them
	// after the agent's checks.
	Checks []Check
	// Configz returns the configurations in use. The keys are the kinds of the configurations,
	// such as kubeletconfig. If Configz is nil, /configz does not exist.
	Configz func() map[string]any
	// Metrics, ProbeMetrics and ResourceMetrics serve /metrics, /metrics/probes and
	// /metrics/resource; Page serves /agent/, and / redirects to /agent/. A path whose handler is
	// nil does not exist.
	Metrics, ProbeMetrics, ResourceMetrics, Page http.Handler
	// CadvisorMetrics serves /metrics/cadvisor. If it is nil, the path does not exist.
	CadvisorMetrics http.Handler
	// Streams starts commands and streams in the runtime for /exec, /attach, /portForward and
	// /run. It requires an Access that authenticates clients, because clients may run commands as
	// root. If Streams is nil, these paths respond that they are disabled.
	Streams Streams
	// StreamIdleTimeout is the time after which the server closes a stream on which no byte has
	// been sent or received. Default 4h, as streamingConnectionIdleTimeout of the kubelet.
	StreamIdleTimeout time.Duration
	// WebSocketStream is called for each stream that the server translates from WebSocket to SPDY.
	// The subresource is exec, attach or portforward. Optional.
	WebSocketStream func(subresource string)
	// Operations restarts pods and pulls images for /agent/restart and /agent/pull. It requires
	// an Access that authenticates clients. If Operations is nil, these paths respond that they are
	// disabled.
	Operations Operations
	// Pprof enables /debug/pprof/.
	Pprof bool
	// SLIMetrics serves /metrics/slis, the results of health checks. If SLIMetrics is nil, the
	// path does not exist.
	SLIMetrics http.Handler
	// NoDebugging disables the endpoints for debugging, as enableDebuggingHandlers: false does in
	// the kubelet. The paths of streams, /run, logs, running pods and profiles then respond that they
	// are disabled. The paths /configz, /checkpoint, /statusz, /flagz and /debug/flags/v do not exist.
	NoDebugging bool
	// Flags returns the flags of the program with their values, for /flagz. It must mask secret
	// values. If Flags is nil, /flagz does not exist.
	Flags func() map[string]string
	// LogLevel is the level of the program's logs, which clients change at /debug/flags/v. If
	// LogLevel is nil, /debug/flags/v responds that it is disabled.
	LogLevel *slog.LevelVar
	// Checkpoints writes checkpoints of containers for /checkpoint. Their files are in the folder
	// CheckpointDir, which the server creates if it is missing. If Checkpoints is nil,
	// /checkpoint does not exist.
	Checkpoints   Checkpointer
	CheckpointDir string
	// SystemLogs is the folder of the node's logs, such as /var/log, for /logs/. If SystemLogs is
	// empty, /logs/ responds that it is disabled.
	SystemLogs string
	// Journal runs journalctl with args and writes its output to w, as [Journalctl] does.
	// /logs/?query=SERVICE responds with this output. Journal requires SystemLogs. If Journal is
	// nil, /logs/ ignores the parameters of a request.
	Journal func(ctx context.Context, w io.Writer, args ...string) error
	// Observer has callbacks for metrics. Optional.
	Observer Observer

	// Access decides which clients are allowed. See also [Server.Listen].
	Access Access
	// MaxConnections is the maximum number of open connections. Default 500. MaxStreams is the
	// maximum number of connections with a long response: a stream, /run, a log, events with
	// ?watch, a profile, a checkpoint or a pull. Default 100, or half of MaxConnections if that is
	// less. MaxStreams must be less than MaxConnections, because the server never closes a
	// connection with a long response to make room for a new connection.
	MaxConnections, MaxStreams int
	// Clock is the time source. Default: the system clock. Deadlines of connections use real
	// time.
	Clock clock.WithTicker
	// Logger receives structured logs, such as refused requests and errors that no response
	// contains. Default: discard.
	Logger *slog.Logger
}

// Streams starts commands and streams in the runtime. *cri.Client implements it. Exec, Attach and
// PortForward return the URL at which the runtime serves the stream.
type Streams interface {
	Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	// ExecSync runs a command until it has ended. A timeout of 0 means no limit.
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Events is a log of events that clients can follow. *eventlog.Log implements it.
type Events interface {
	// After returns the stored events with numbers above the given number, and the number for the
	// next call. After returns false if an event with a number above the given number was deleted.
	After(number uint64) (events []api.Event, next uint64, complete bool)
	// Changed returns a channel that is closed when an event with a number above the given number
	// exists.
	Changed(number uint64) <-chan struct{}
	// About returns the last events about an object, newest first. The limit is the maximum number
	// of events.
	About(kind, namespace, name string, limit int) []api.Event
}

// Problem is a problem of a manifest. It implements error.
type Problem struct {
	// File is the path or the URL of the manifest.
	File string
	// Err is the problem.
	Err error
}

// Error returns the file and the problem.
func (p Problem) Error() string { return fmt.Sprintf("%s: %v", p.File, p.Err) }

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// Check is a check of the program for /healthz, /readyz and /agent/status.
type Check struct {
	// Name is the name of the check in ?verbose and ?exclude. Required.
	Name string
	// Run runs the check. It returns the cause if the check fails, or nil if the check passes.
	// It must not block. Required.
	Run func() error
	// Notes returns additional lines for ?verbose. They do not make the check fail. Optional.
	Notes func() []string
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, 500)
	c.MaxStreams = cmp.Or(c.MaxStreams, min(100, c.MaxConnections/2))
	c.StreamIdleTimeout = cmp.Or(c.StreamIdleTimeout, 4*time.Hour)
	if c.WebSocketStream == nil {
		c.WebSocketStream = func(string) {}
	}
	if c.Info == nil {
		c.Info = func() api.Agent { return api.Agent{} }
	}
	if c.Problems == nil {
		c.Problems = func() []Problem { return nil }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports every problem with c, joined. It opens no file.
func (c Config) Validate() error {
	var errs []error
	if c.Agent == nil {
		errs = append(errs, errors.New("field Agent is required"))
	}
	if c.MaxConnections < 0 || c.MaxStreams < 0 {
		errs = append(errs, errors.New("fields MaxConnections and MaxStreams: must not be negative"))
	}
	if c.StreamIdleTimeout < 0 {
		errs = append(errs, errors.New("field StreamIdleTimeout: must not be negative"))
	}
	if d := c.withDefaults(); d.MaxStreams >= d.MaxConnections {
		errs = append(errs, fmt.Errorf("field MaxStreams: must be less than MaxConnections, which is %d", d.MaxConnections))
	}
	if c.Streams != nil && !c.Access.Authenticates() {
		errs = append(errs, errors.New("field Streams: requires Access.TokenFile, ClientCAFile or TokenReviewer, because every client could run commands in containers"))
	}
	errs = append(errs, c.debuggingProblems()...)
	if c.Operations != nil && !c.Access.Authenticates() {
		errs = append(errs, errors.New("field Operations: requires Access.TokenFile, ClientCAFile or TokenReviewer, because every client could stop containers"))
	}
	for i, check := range c.Checks {
		if check.Name == "" || check.Run == nil {
			errs = append(errs, fmt.Errorf("field Checks[%d]: Name and Run are required", i))
		}
	}
	return errors.Join(append(errs, c.Access.Validate())...)
}
