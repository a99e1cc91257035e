package kubeletapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// /metrics/resource; Page serves /agent/, to which / redirects. A path whose handler is nil
	// does not exist.
	Metrics, ProbeMetrics, ResourceMetrics, Page http.Handler
	// Streams starts commands and streams in the runtime for /exec, /attach, /portForward and
	// /run. It requires Access.TokenFile, because clients may run commands as root. If Streams
	// is nil, these paths respond that they are disabled.
	Streams Streams
	// Pprof enables /debug/pprof/.
	Pprof bool

	// Access decides which clients are allowed. See also [Server.Listen].
	Access Access
	// MaxConnections is the maximum number of open connections. Default 500. MaxStreams is the
	// maximum number of connections with a stream. Default 100, or half of MaxConnections if
	// that is less. MaxStreams must be less than MaxConnections, because the server does not
	// close a stream to make room for a new connection.
	MaxConnections, MaxStreams int
	// Clock is the time source. Default: the system clock. Deadlines of connections use real
	// time.
	Clock clock.WithTicker
	// Logger receives errors that no response contains. Default: discard.
	Logger *slog.Logger
}

// Access decides which clients are allowed, and whether connections are encrypted.
type Access struct {
	// CertFile and KeyFile are the PEM files of the serving certificate and its key. If both
	// are empty, connections are not encrypted. Set both or neither.
	CertFile, KeyFile string
	// TokenFile is the file with the bearer token that requests must have. While the file can't
	// be read or has no token, all requests that need a token are refused. Default: requests
	// need no token.
	TokenFile string
}

// URL returns the URL of a Server with this access that listens on addr.
func (a Access) URL(addr net.Addr) string {
	if a.CertFile != "" {
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Validate reports every problem with a, joined. It opens no file.
func (a Access) Validate() error {
	if (a.CertFile == "") != (a.KeyFile == "") {
		return errors.New("CertFile and KeyFile must both be set, or neither")
	}
	return nil
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
	// After returns the stored events after the event number, and the number for the next call.
	// complete is false if an event after number was deleted.
	After(number uint64) (events []api.Event, next uint64, complete bool)
	// Changed returns a channel that is closed when an event after the event number exists.
	Changed(number uint64) <-chan struct{}
	// About returns at most limit of the last events about an object, newest first.
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
	if d := c.withDefaults(); d.MaxStreams >= d.MaxConnections {
		errs = append(errs, fmt.Errorf("field MaxStreams: must be less than MaxConnections, which is %d", d.MaxConnections))
	}
	if c.Streams != nil && c.Access.TokenFile == "" {
		errs = append(errs, errors.New("field Streams: requires Access.TokenFile, because every client could run commands in containers"))
	}
	for i, check := range c.Checks {
		if check.Name == "" || check.Run == nil {
			errs = append(errs, fmt.Errorf("field Checks[%d]: Name and Run are required", i))
		}
	}
	return errors.Join(append(errs, c.Access.Validate())...)
}
