package imagegc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/loop"
)

var (
	// ErrRunning is returned by a second [Manager.Run] beside the first.
	ErrRunning = loop.ErrRunning
	// ErrInvalidCapacity says that a measurement makes no sense.
	ErrInvalidCapacity = errors.New("invalid capacity 0 on image filesystem")
)

// Manager deletes images. Make it with [New]; its methods may be called by any
// number of goroutines, except that callbacks must not start a pass.
type Manager struct {
	cfg    Config
	policy limits
	loop   *loop.Loop
	asked  atomic.Bool // for a collection

	// step, of capacity 1, is full while a pass is under way. It serialises them and
	// guards the fields down to mu; a channel, because its waiters have contexts.
	step    chan struct{}
	users   *users
	usersAt time.Time // of the last list of containers
	records map[string]*record
	loaded  bool
	changed bool // since savedAt, beyond times of use
	owed    bool // a call of AfterGC
	savedAt time.Time
	failing bool                 // the last collection of Run did
	quiet   map[string]time.Time // when an event may be repeated

	// mu guards the fields below and is never held during a call to others. Passes are
	// the only ones that change images, and read them without mu.
	mu       sync.Mutex
	images   []*runtimeapi.Image // as last listed, not modified
	leases   []*lease
	deleting *deletion // the one under way
}

// Result is what a pass that may delete images did.
type Result struct {
	// At is when it began, Took how long it took.
	At   time.Time
	Took time.Duration
	// Before and After are the first and the last measurement; zero if it took none.
	Before Usage
	After  Usage
	// WantBytes is how much it was to free for space, not counting old age.
	WantBytes uint64
	// FreedBytes is how much more is available at its end than before it deleted:
	// others may have written meanwhile.
	FreedBytes uint64
	// Removed are the images that it deleted, in the order in which that was done.
	Removed []Removal
	// Failed are those whose deletion failed.
	Failed []Removal
}

// Removal is an image that was deleted, or not.
type Removal struct {
	Image  Image
	Reason Reason
	// Err says why not.
	Err error
}

// New returns a Manager. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("imagegc: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Manager{
		cfg:     cfg,
		policy:  cfg.Policy.limits(),
		loop:    loop.New(cfg.Clock),
		step:    make(chan struct{}, 1),
		users:   &users{byHandler: cfg.RuntimeClassInImageCriAPI},
		records: map[string]*record{},
		quiet:   map[string]time.Time{},
	}, nil
}

// Run collects at once and then each Period, looks at what is in use each
// DetectPeriod, and returns nil when ctx is done. A collection that fails is
// observed and tried again. A second Run beside the first returns [ErrRunning].
//
// Without MaxAge, and with a high threshold of 100 or without an FS, it collects only
// when triggered.
func (m *Manager) Run(ctx context.Context) error {
	var next time.Time
	err := m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		due := !m.idle() && !m.cfg.Clock.Now().Before(next)
		if m.asked.Swap(false) || due {
			m.collectInTurn(ctx)
			next = m.cfg.Clock.Now().Add(m.cfg.Period)
		} else if err := m.Detect(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Logger.WarnContext(ctx, "look at images failed", "err", err)
		}
		if m.idle() {
			return m.cfg.DetectPeriod
		}
		return max(0, min(m.cfg.DetectPeriod, next.Sub(m.cfg.Clock.Now())))
	})
	if err == nil {
		m.saveLast(ctx)
	}
	return err
}

// idle reports whether a collection can never find anything to do.
func (m *Manager) idle() bool {
	return m.policy.maxAge == 0 && (m.policy.high == 100 || m.cfg.FS == nil)
}

// Trigger asks [Manager.Run] to collect soon. It never blocks.
func (m *Manager) Trigger() {
	m.asked.Store(true)
	m.loop.Trigger()
}

// Detect looks at images and containers, keeps the ages of images up to date and
// deletes nothing. The error is that of a list, which leaves all as it was, or of a
// container whose images are not known, or of ctx.
func (m *Manager) Detect(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	err := m.detect(ctx, m.cfg.Clock.Now())
	m.save(ctx, m.cfg.Clock.Now())
	return err
}

// Collect deletes the images that have reached MaxAge and then, if the filesystem is
// above the high mark, others until it is measured to be below the low one. It does
// both as far as it can; the error joins what went wrong and has a [*SpaceError] if
// there is still too little space although each deletion for it succeeded.
func (m *Manager) Collect(ctx context.Context) (Result, error) {
	return m.pass(ctx, func(p *pass) error {
		aged := m.age(ctx, p)
		if err := m.measure(ctx, p); err != nil {
			return errors.Join(aged, err)
		}
		err := m.free(ctx, p, m.policy.wanted(p.res.After))
		if short, ok := errors.AsType[*SpaceError](err); ok {
			m.warn(eventFreeDiskSpaceFailed, "", short.Error())
		}
		return errors.Join(aged, err)
	})
}

// Free deletes images until so many more bytes are available than when it began,
// whatever the thresholds. The error is a [*SpaceError] if that cannot be had although
// each deletion succeeded. Without an FS it deletes nothing and returns an error.
func (m *Manager) Free(ctx context.Context, bytes uint64) (Result, error) {
	return m.pass(ctx, func(p *pass) error {
		if m.cfg.FS == nil {
			return errNoFS
		}
		if err := m.measure(ctx, p); err != nil {
			return err
		}
		return m.free(ctx, p, bytes)
	})
}

// DeleteUnusedImages deletes every image that may go, whatever the usage: the
// eviction manager's last resort before it ends pods. The error joins those of
// images whose deletion failed; Observer.Collected has the result.
func (m *Manager) DeleteUnusedImages(ctx context.Context) error {
	_, err := m.pass(ctx, func(p *pass) error {
		if m.cfg.FS != nil {
			if u, err := m.cfg.FS.Usage(ctx); err == nil { // only to tell how much it was
				m.measured(p, u)
			}
		}
		return m.reclaim(ctx, p, deletions(Select(p.res.At, m.snapshot(), m.cfg.Policy, Goal{All: true})), everything)
	})
	return err
}

// Plan says what [Manager.Collect] would do now, by the sizes of images that the
// runtime tells, and why. It deletes nothing. The error is what would keep a
// collection from deleting anything.
func (m *Manager) Plan(ctx context.Context) (Plan, error) {
	if err := m.lock(ctx); err != nil {
		return Plan{}, err
	}
	defer m.unlock()
	now := m.cfg.Clock.Now()
	if err := m.detect(ctx, now); err != nil {
		return Plan{}, err
	}
	var u Usage
	if m.cfg.FS != nil {
		var err error
		if u, err = m.usage(ctx); err != nil {
			return Plan{}, err
		}
	}
	return newPlan(now, m.snapshot(), m.cfg.Policy, u), nil
}

// lock waits for the end of the pass under way, no longer than ctx lasts.
func (m *Manager) lock(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case m.step <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("imagegc: pass not begun: %w", ctx.Err())
}

func (m *Manager) unlock() { <-m.step }
