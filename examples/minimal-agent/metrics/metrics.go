package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

// DefaultPrefix is that of the kubelet's metrics.
const DefaultPrefix = "kubelet_"

// Config configures [Metrics]. The zero value is valid.
type Config struct {
	// NodeName is the label of kubelet_node_name. Empty: there is none.
	NodeName string
	// Prefix stands before the names of the kubelet's own metrics, for who scrapes a
	// kubelet of the same node too. Default [DefaultPrefix].
	Prefix string
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Logger receives what goes wrong in a scrape. Default: discard.
	Logger *slog.Logger
}

// Validate reports every problem with c.
func (c Config) Validate() error {
	if c.Prefix != "" && !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(c.Prefix) {
		return fmt.Errorf("field Prefix: %q is not the beginning of a metric's name", c.Prefix)
	}
	return nil
}

// Metrics are the metrics of one agent. Make them with [New]; all methods are safe for
// concurrent use, and so is what they return.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry // of /metrics
	probes   *prometheus.Registry // of /metrics/probes

	pleg      plegMetrics
	pods      podMetrics
	upkeep    upkeepMetrics
	eviction  evictionMetrics
	calls     callMetrics
	probeRuns probeMetrics

	mu     sync.Mutex
	runs   map[prober.Key]*probeSeries
	timed  map[timing]int        // how many probes share a duration
	killed map[victim]uint64     // kills for want of memory
	ops    map[string]*operation // by gRPC method
}

// New returns metrics of which nothing has happened yet.
func New(cfg Config) (*Metrics, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("metrics: invalid config: %w", err)
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
		cfg: cfg, registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(),
		runs: map[prober.Key]*probeSeries{}, timed: map[timing]int{}, killed: map[victim]uint64{},
		ops: map[string]*operation{},
	}
	f, p := &maker{prefix: cfg.Prefix, registry: m.registry}, &maker{registry: m.probes}
	m.pleg, m.pods, m.upkeep = newPLEG(f), newPods(f), newUpkeep(f)
	m.eviction, m.calls = newEviction(f), newCalls(f)
	m.probeRuns = newProbes(p)
	f.add(collectors.NewGoCollector())
	f.add(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if cfg.NodeName != "" {
		f.gauges("node_name", "1, with the name of the node.", "node").WithLabelValues(cfg.NodeName).Set(1)
	}
	return m, errors.Join(f.err, p.err)
}
