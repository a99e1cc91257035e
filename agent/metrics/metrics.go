package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
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
	// HealthRegisterer registers the metrics of health checks, which the kubelet serves on a
	// separate page, /metrics/slis. Default: Registerer.
	HealthRegisterer prometheus.Registerer
	// Prefix is the prefix of the metrics whose names start with kubelet_ in the kubelet.
	// Change it if the Prometheus server also scrapes a kubelet on the same node. Default
	// [DefaultPrefix].
	Prefix string
	// Clock is the time source. Default: the system clock.
	Clock clock.PassiveClock
	// Logger receives the errors of the handlers of [Metrics.Resource] and [Metrics.Cadvisor].
	// Default: discard.
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
	cfg   Config
	began time.Time // when New was called

	pleg      plegMetrics
	pods      podMetrics
	managers  managerMetrics
	eviction  evictionMetrics
	calls     callMetrics
	probeRuns probeMetrics
	http      httpMetrics
	health    healthMetrics
	starts    startMetrics
	resizes   resizeMetrics
	volumes   volumeMetrics
	streams   *prometheus.CounterVec // of WebSockets, by subresource

	mu      sync.Mutex
	sources []*Source // in the order of Add
	runs    map[prober.Key]*probeSeries
	timed   map[timing]int        // number of probes that share a duration series
	killed  map[victim]uint64     // OOM kills
	ops     map[string]*operation // by gRPC method

	starting          map[types.UID]*starting
	networkPodStarted bool
	userPods          map[types.UID]bool            // pods with user namespaces whose sandbox was started in the current sync
	podVolumes        map[types.UID]map[volume]bool // whether a volume of a pod is mounted
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
	if cfg.HealthRegisterer == nil {
		cfg.HealthRegisterer = cfg.Registerer
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
		cfg: cfg, began: cfg.Clock.Now(),
		runs: map[prober.Key]*probeSeries{}, timed: map[timing]int{}, killed: map[victim]uint64{},
		ops: map[string]*operation{}, starting: map[types.UID]*starting{}, userPods: map[types.UID]bool{}, podVolumes: map[types.UID]map[volume]bool{},
	}
	h := &maker{registry: cfg.HealthRegisterer}
	f, p := &maker{prefix: cfg.Prefix, registry: cfg.Registerer}, &maker{registry: cfg.ProbeRegisterer}
	m.pleg, m.pods, m.managers = newPLEG(f), newPods(f), newManagers(f)
	m.eviction, m.calls = newEviction(f), newCalls(f)
	m.http, m.starts, m.resizes, m.volumes = newHTTP(f), newStarts(f), newResizes(f), newVolumes(f)
	m.health = newHealth(h)
	m.streams = f.counters("websocket_streaming_requests_total", "Requests for exec, attach and port-forward over WebSocket.", "subresource")
	f.add(newState(m, cfg.Prefix))
	m.probeRuns = newProbes(p)
	if err := errors.Join(f.err, p.err, h.err); err != nil {
		f.undo()
		h.undo()
		p.undo()
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}
