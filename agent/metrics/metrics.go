package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

// DefaultPrefix is the prefix of the kubelet's metrics.
const DefaultPrefix = "kubelet_"

// Config configures [Metrics].
type Config struct {
	// Registerer registers the metrics. A *prometheus.Registry is a Registerer. Required.
	Registerer prometheus.Registerer
	// ProbeRegisterer registers the metrics of probes, which the kubelet serves on a separate
	// page, /metrics/probes. Default: Registerer.
	ProbeRegisterer prometheus.Registerer
	// Prefix is the prefix of the metrics whose names start with kubelet_ in the kubelet.
	// Change it if the Prometheus server also scrapes a kubelet on the same node. Default
	// [DefaultPrefix].
	Prefix string
	// Clock is the time source. Default: the system clock.
	Clock clock.PassiveClock
	// Logger receives the errors of the handler of [Metrics.Resource]. Default: discard.
	Logger *slog.Logger
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Registerer == nil {
		errs = append(errs, errors.New("field Registerer is required"))
	}
	if c.Prefix != "" && !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("field Prefix: %q is not a valid prefix of a metric name", c.Prefix))
	}
	return errors.Join(errs...)
}

// Metrics has the metrics of one or several agents. Create it with [New]. All methods, and all
// observers that they return, may be called concurrently.
type Metrics struct {
	cfg Config

	pleg      plegMetrics
	pods      podMetrics
	managers  managerMetrics
	eviction  evictionMetrics
	calls     callMetrics
	probeRuns probeMetrics

	mu      sync.Mutex
	sources []*Source // in the order of Add
	runs    map[prober.Key]*probeSeries
	timed   map[timing]int        // number of probes that share a duration series
	killed  map[victim]uint64     // OOM kills
	ops     map[string]*operation // by gRPC method
}

// New returns a Metrics and registers all its metrics. If New fails, for example because a
// metric with the same name is already registered, it unregisters all metrics that it has
// registered.
func New(cfg Config) (*Metrics, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("metrics: invalid config: %w", err)
	}
	if cfg.ProbeRegisterer == nil {
		cfg.ProbeRegisterer = cfg.Registerer
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{
		cfg:  cfg,
		runs: map[prober.Key]*probeSeries{}, timed: map[timing]int{}, killed: map[victim]uint64{},
		ops: map[string]*operation{},
	}
	f, p := &maker{prefix: cfg.Prefix, registry: cfg.Registerer}, &maker{registry: cfg.ProbeRegisterer}
	m.pleg, m.pods, m.managers = newPLEG(f), newPods(f), newManagers(f)
	m.eviction, m.calls = newEviction(f), newCalls(f)
	f.add(newState(m, cfg.Prefix))
	m.probeRuns = newProbes(p)
	if err := errors.Join(f.err, p.err); err != nil {
		f.undo()
		p.undo()
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}
