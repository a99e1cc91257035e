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
	// ErrRunning is returned by [Manager.Run] while another Run is active.
	ErrRunning = loop.ErrRunning
	// ErrInvalidCapacity is returned if the image filesystem is measured with a capacity
	// of 0. Its text is the kubelet's.
	ErrInvalidCapacity = errors.New("invalid capacity 0 on image filesystem")
)

// Manager deletes images. Create it with [New]. Its methods may be called concurrently,
// but callbacks must not start a pass.
type Manager struct {
	cfg              Config
	policy           limits
	loop             *loop.Loop
	collectRequested atomic.Bool // a collection was requested by Trigger

	// step, of capacity 1, is full while a pass runs. It serialises passes and guards the
	// fields down to mu. It is a channel and not a mutex, so that a waiting pass can stop
	// when its context is done.
	step           chan struct{}
	users          *imageUsers
	usersAt        time.Time // time of the last list of containers
	records        map[string]*record
	loaded         bool
	changed        bool // the ages have changed since savedAt; a newer LastUsed alone does not count
	afterGCPending bool // AfterGC must be called by the next pass
	savedAt        time.Time
	lastFailed     bool                 // the last collection of Run failed
	eventAllowedAt map[string]time.Time // when an event may be repeated, by reason and subject

	// mu guards the fields below. It is never held while the runtime, the Store or a callback
	// is called. Only passes change the field images, so a pass reads it without mu.
	mu       sync.Mutex
	images   []*runtimeapi.Image // as last listed, not modified
	leases   []*lease
	deleting *deletion // the deletion in progress
}

// Result is the result of a pass that may delete images.
type Result struct {
	// At is when the pass started, Took how long it took.
	At   time.Time
	Took time.Duration
	// Before and After are the first and the last measurement of the filesystem. They are
	// zero if the pass measured nothing.
	Before Usage
	After  Usage
	// WantBytes is the number of bytes that the pass had to free, not counting deletions
	// for MaxAge.
	WantBytes uint64
	// FreedBytes is how many more bytes are available in After than in Before. Other
	// processes may have written to the filesystem meanwhile.
	FreedBytes uint64
	// Removed are the deleted images, in the order of deletion.
	Removed []Removal
	// Failed are the images whose deletion failed.
	Failed []Removal
}

// Removal is the deletion of an image, successful or not.
type Removal struct {
	Image  Image
	Reason Reason
	// Err is the error of a failed deletion.
	Err error
}

// New returns a Manager. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("imagegc: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Manager{
		cfg:            cfg,
		policy:         cfg.Policy.limits(),
		loop:           loop.New(cfg.Clock),
		step:           make(chan struct{}, 1),
		users:          &imageUsers{byHandler: cfg.RuntimeClassInImageCriAPI},
		records:        map[string]*record{},
		eventAllowedAt: map[string]time.Time{},
	}, nil
}

// Run collects at once and then once per Period, checks which images are in use once per
// DetectPeriod, and returns nil when ctx is done. A failed collection is passed to the
// Observer and repeated after Period. While another Run is active, it returns
// [ErrRunning].
//
// If there is no MaxAge, and the high threshold is 100 or there is no FS, Run collects
// only when triggered.
func (m *Manager) Run(ctx context.Context) error {
	var next time.Time
	err := m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		due := !m.idle() && !m.cfg.Clock.Now().Before(next)
		if m.collectRequested.Swap(false) || due {
			m.collectAndReport(ctx)
			next = m.cfg.Clock.Now().Add(m.cfg.Period)
		} else if err := m.Detect(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Logger.WarnContext(ctx, "could not check which images are in use, will retry", "err", err)
		}
		if m.idle() {
			return m.cfg.DetectPeriod
		}
		return max(0, min(m.cfg.DetectPeriod, next.Sub(m.cfg.Clock.Now())))
	})
	if err == nil {
		m.saveFinal(ctx)
	}
	return err
}

// idle reports whether the policy and the FS leave nothing to do for collections.
func (m *Manager) idle() bool {
	return m.policy.maxAge == 0 && (m.policy.high == 100 || m.cfg.FS == nil)
}

// Trigger requests a collection of [Manager.Run] soon. It never blocks.
func (m *Manager) Trigger() {
	m.collectRequested.Store(true)
	m.loop.Trigger()
}

// Detect lists images and containers, updates the ages of images, and deletes nothing. It
// returns an error if a list fails, and then changes no ages. It also returns an error if
// the images of a container are unknown or ctx is done.
func (m *Manager) Detect(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	err := m.detect(ctx, m.cfg.Clock.Now())
	m.save(ctx, m.cfg.Clock.Now())
	return err
}

// Collect deletes the images that have reached MaxAge. Then, if the filesystem is at or
// above the high threshold, it deletes other images until the measured usage is at the low
// threshold. A failed deletion does not stop other deletions. The error joins the failures, and
// contains a [*SpaceError] if there is still too little space although each deletion for space
// succeeded. If other deletions have freed enough space, failed deletions for space are only in
// Result.Failed.
func (m *Manager) Collect(ctx context.Context) (Result, error) {
	return m.pass(ctx, func(p *pass) error {
		aged := m.deleteAged(ctx, p)
		if err := m.measure(ctx, p); err != nil {
			return errors.Join(aged, err)
		}
		err := m.free(ctx, p, m.policy.bytesToFree(p.res.After))
		if short, ok := errors.AsType[*SpaceError](err); ok {
			m.warn(eventFreeDiskSpaceFailed, "", short.Error())
		}
		return errors.Join(aged, err)
	})
}

// Free deletes images until the number of available bytes has risen by the given number,
// without regard to the thresholds. The error is a [*SpaceError] if too few bytes became
// available although each deletion succeeded. Without an FS it deletes nothing and returns
// an error.
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

// DeleteUnusedImages deletes every image that is not protected, without regard to disk
// usage. The eviction manager calls it before it evicts pods. The error joins the errors
// of failed deletions. The result is passed to Observer.Collected.
func (m *Manager) DeleteUnusedImages(ctx context.Context) error {
	_, err := m.pass(ctx, func(p *pass) error {
		if m.cfg.FS != nil {
			if u, err := m.cfg.FS.Usage(ctx); err == nil { // only for the result
				m.recordUsage(p, u)
			}
		}
		return m.reclaim(ctx, p, deletions(PlanDeletions(p.res.At, m.snapshot(), m.cfg.Policy, Goal{All: true})), unlimited)
	})
	return err
}

// Plan returns what [Manager.Collect] would do now, and why, computed from the image sizes that
// the runtime reports. It deletes nothing. If the image filesystem cannot be measured, Plan
// returns the error together with the plan of a collection that deletes only the images that have
// reached MaxAge. After any other error, the plan is the zero value.
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
	var err error
	if m.cfg.FS != nil {
		u, err = m.usage(ctx)
	}
	return newPlan(now, m.snapshot(), m.cfg.Policy, u), err
}

// lock waits until no other pass runs or ctx is done.
func (m *Manager) lock(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case m.step <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("imagegc: wait for another pass: %w", ctx.Err())
}

func (m *Manager) unlock() { <-m.step }
