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

// ErrRunning is returned by [Provider.Run] if the provider is already running.
var ErrRunning = loop.ErrRunning

// Provider measures a node and its pods. Create it with [New]. All methods may be called
// concurrently; for the lifetime of results see [Provider.Node] and [Provider.Pods].
type Provider struct {
	cfg   Config
	loop  *loop.Loop
	since time.Time
	rearm time.Duration // the constant rearm, except in tests

	refreshing chan struct{} // capacity 1, used as a lock; guards folders, queue, level and quotas
	folders    podFolders
	queue      []*podWalk
	level      diskLevel
	quotas     quotas

	node nodeProbe

	podsMu sync.Mutex // guards pods
	pods   podProbe

	mu      sync.Mutex // guards the following fields
	disk    map[types.UID]podDisk
	runtime runtimeStats
	cpu     map[string]cpuSample // by container id, pod UID or cgroup
	cores   map[Figure]uint64    // result of the method processors; nil before its first call
}

// New returns a Provider that has measured nothing yet. The error reports every problem with
// cfg.
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

// Run calls Refresh at once, and then again whenever Period has passed since the end of the
// last refresh. It returns nil when ctx is done. Run logs the errors of Refresh, which the
// Observer also receives; the next refresh retries what failed.
func (p *Provider) Run(ctx context.Context) error {
	return p.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if _, err := p.Refresh(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "could not refresh some statistics, their previous values stay in use, will retry", "err", err)
		}
		return p.cfg.Period
	})
}

// Close closes the open files. It waits for a running refresh. If the provider is used after
// Close, it opens files again.
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

// callTimeout is the timeout of each runtime call, in real time. In sandboxStats, it is the timeout
// of all calls together.
const callTimeout = 10 * time.Second

// Refreshed is the result of a refresh.
type Refreshed struct {
	// Entries is the number of examined files and folders. Quotas is the number of folders whose
	// usage came from a project quota, so that no walk was needed.
	Entries, Quotas int
	// Pods is the number of pods whose measurement was completed. Waiting is the number of pods
	// whose measurement a later refresh will start or continue.
	Pods, Waiting int
}

// Refresh does the slow measurements: it finds the filesystems, gets the runtime's statistics of
// containers, and measures volumes and logs. A call examines at most WalkEntries files. Node, Pods
// and Summary use the results. Refresh measures every pod with a folder in NodePath or LogPath, so
// that the figures exist when Pods is first called with the pod. It deletes the disk figures of
// pods without a folder.
//
// Only one refresh runs at a time: a second call waits until the first call has returned, or
// until the ctx of the second call is done. The error reports what failed. Figures that could
// not be measured keep their previous values and times.
func (p *Provider) Refresh(ctx context.Context) (r Refreshed, err error) {
	select {
	case p.refreshing <- struct{}{}:
	case <-ctx.Done():
		return r, ctx.Err()
	}
	defer func() { <-p.refreshing }()
	err = p.refreshDisk(ctx, &r) // first, because it depends on no other process
	err = errors.Join(p.refreshNode(ctx), p.refreshRuntime(ctx), err)
	p.forgetSamples()
	p.cfg.Observer.Refreshed(r, err)
	return r, err
}
