package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning says that the provider is being run already.
var ErrRunning = loop.ErrRunning

// Provider measures a node and its pods. Make it with [New]. All methods may be
// called concurrently, but see [Provider.Node] and [Provider.Pods] about what
// they return.
type Provider struct {
	cfg   Config
	loop  *loop.Loop
	since time.Time
	rearm time.Duration // of Watch

	refreshing chan struct{} // capacity 1: the right to refresh, with which go folders, queue, level and quotas
	folders    podFolders
	queue      []*podWalk
	level      diskLevel
	quotas     quotas

	node nodeProbe

	podsMu sync.Mutex // guards pods
	pods   podProbe

	mu      sync.Mutex // guards what follows
	disk    map[types.UID]podDisk
	runtime runtimeStats
	cpu     map[string]cpuSample // by container id, pod UID or cgroup
}

// New returns a provider that has not looked at anything yet. The error names
// every problem with the config.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("stats: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Provider{
		cfg: cfg, loop: loop.New(cfg.Clock), since: cfg.Clock.Now(), rearm: rearm, refreshing: make(chan struct{}, 1),
		quotas: quotas{kernel: kernelQuotas{}, owners: map[project]map[string]types.UID{}},
		disk:   map[types.UID]podDisk{}, cpu: map[string]cpuSample{},
	}
	p.node.init(cfg)
	return p, nil
}

// Run refreshes at once and then every Period, until ctx is done; it returns nil
// then. What went wrong is logged, told to the Observer, and tried again.
func (p *Provider) Run(ctx context.Context) error {
	return p.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if _, err := p.Refresh(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "not all statistics could be refreshed", "err", err)
		}
		return p.cfg.Period
	})
}

// Close closes the files that are kept open. A provider that is used again opens
// them again.
func (p *Provider) Close() error {
	p.node.close()
	p.refreshing <- struct{}{}
	defer func() { <-p.refreshing }()
	for _, w := range p.queue {
		w.close()
	}
	p.queue = nil
	return nil
}

// callTimeout bounds each call of the runtime, in real time: a hung one must not keep
// the disks from being measured.
const callTimeout = 10 * time.Second

// Refreshed says what a refresh did.
type Refreshed struct {
	// Entries is how many files and folders were looked at, and Quotas of how many
	// folders a project quota told instead what is in them.
	Entries, Quotas int
	// Pods is of how many pods the disk usage was completed, and Waiting of how
	// many it is not complete yet.
	Pods, Waiting int
}

// Refresh looks at all that takes longer than a moment: which filesystems there
// are, what the runtime says about containers, and what volumes and logs take,
// WalkEntries files at a time. Node, Pods and Summary use what it has found. It
// measures every pod that has a folder in NodePath or LogPath, whether it was ever asked
// for or not: the figures are there when Pods is first called with it. Those of a pod
// whose folders are gone are forgotten. One
// refresh runs at a time; a second one waits until the first has ended or its own
// ctx is done. What fails is in the error, and what was known of it before stays,
// with the time at which it was measured.
func (p *Provider) Refresh(ctx context.Context) (r Refreshed, err error) {
	select {
	case p.refreshing <- struct{}{}:
	case <-ctx.Done():
		return r, ctx.Err()
	}
	defer func() { <-p.refreshing }()
	err = p.refreshDisk(ctx, &r) // first, for it waits for nobody
	err = errors.Join(p.refreshNode(ctx), p.refreshRuntime(ctx), err)
	p.forgetSamples()
	p.cfg.Observer.Refreshed(r, err)
	return r, err
}
