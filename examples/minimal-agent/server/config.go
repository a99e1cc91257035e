package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server/podlogs"
)

// Config is what is served. Every func and handler is optional: without it its
// endpoint does not exist. They are called by many requests at once.
type Config struct {
	// Checks are asked by /healthz and /readyz, in this order.
	Checks []Check
	// Status, Explain and Events are the endpoints in words of package api.
	Status  func(context.Context) api.Status
	Explain func(ctx context.Context, namespace, name string) (api.Explanation, error)
	Events  Events
	// Pods are those that are wanted, with their statuses. They are only read.
	Pods func() []*corev1.Pod
	// RunningPods are those that run, as the runtime says.
	RunningPods func(context.Context) ([]*corev1.Pod, error)
	// Summary is what runs uses. One that comes with an error is served, too.
	Summary func(context.Context) (*statsapi.Summary, error)
	// Configz is the configuration in use, by the names of its kinds.
	Configz func() map[string]any
	// Logs finds the log of a container. A [StatusError] says what to answer when
	// there is none.
	Logs func(ctx context.Context, namespace, pod, container string, previous bool) (podlogs.Source, error)
	// EvictionPlan and GCPlan say what would be done now.
	EvictionPlan, GCPlan PlanFunc
	// Metrics, ProbeMetrics and ResourceMetrics answer /metrics and below it, Page
	// answers /.
	Metrics, ProbeMetrics, ResourceMetrics, Page http.Handler
	// Pprof serves /debug/pprof/.
	Pprof bool

	// Access says who may ask: see [Listen].
	Access Access
	// MaxConnections and MaxStreams bound what is open at once. Defaults 500, and 100 or
	// half of MaxConnections if that is less. MaxStreams must be less than
	// MaxConnections, as streams make no room for others.
	MaxConnections, MaxStreams int
	// Clock is the time source. Default the system clock. Deadlines of connections
	// are in real time.
	Clock clock.WithTicker
	// Logger receives what no client is told. Default: discard.
	Logger *slog.Logger
}

// Access says who may ask, and how.
type Access struct {
	// CertFile and KeyFile have the certificate to serve with and its key, in PEM.
	// Neither or both: without them nothing is encrypted.
	CertFile, KeyFile string
	// TokenFile has the token that requests must bring. While it can't be read or has no
	// token, all are refused. Default: they need none.
	TokenFile string
}

// URL is where a Server with this access is found that listens there.
func (a Access) URL(addr net.Addr) string {
	if a.CertFile != "" {
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Validate reports every problem with a, joined. It opens nothing.
func (a Access) Validate() error {
	if (a.CertFile == "") != (a.KeyFile == "") {
		return errors.New("a certificate and its key belong together: there is one without the other")
	}
	return nil
}

// Plan is something that would be done: it marshals to JSON, and String explains it.
type Plan interface{ fmt.Stringer }

// PlanFunc makes one.
type PlanFunc func(context.Context) (Plan, error)

// Events is a log of events that can be followed: see package eventlog.
type Events interface {
	// After returns the events with higher numbers, the number to ask with next, and
	// whether none is missing.
	After(number uint64) (events []api.Event, next uint64, complete bool)
	// Changed returns a channel that is closed when there are some.
	Changed(number uint64) <-chan struct{}
}

// StatusError is an error with the code to answer with. Others are answered with 500.
type StatusError struct {
	Code    int
	Message string
}

// Error is the message, which clients are told.
func (e *StatusError) Error() string { return e.Message }

func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, 500)
	c.MaxStreams = cmp.Or(c.MaxStreams, min(100, c.MaxConnections/2))
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.MaxConnections < 0 || c.MaxStreams < 0 {
		errs = append(errs, errors.New("fields MaxConnections and MaxStreams: want no negative number"))
	}
	if d := c.withDefaults(); d.MaxStreams >= d.MaxConnections {
		errs = append(errs, fmt.Errorf("field MaxStreams: want less than MaxConnections, which is %d", d.MaxConnections))
	}
	for i, check := range c.Checks {
		if check.Name == "" || check.Run == nil {
			errs = append(errs, fmt.Errorf("field Checks[%d]: Name and Run are required", i))
		}
	}
	return errors.Join(append(errs, c.Access.Validate())...)
}
