package imagegc_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/imagegc"
)

// failing is a script whose list of images can fail, and which counts the calls.
type failing struct {
	*script
	mu                      sync.Mutex // of err and images
	err                     error
	images, containers, fss int
	full                    bool
}

// fail makes the lists of images fail with an error, or succeed again.
func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// looks returns how many times images were listed.
func (f *failing) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.images
}

// safe is a recorder for several goroutines.
type safe struct {
	mu     sync.Mutex
	events recorder
}

func (s *safe) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Eventf(object, kind, reason, format, args...)
}

func (s *safe) all() recorder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func (f *failing) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images++
	if f.err != nil {
		return nil, f.err
	}
	return f.script.ListImages(ctx, filter)
}

func (f *failing) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	f.containers++
	return f.script.ListContainers(ctx, filter)
}

func (f *failing) Usage(context.Context) (imagegc.Usage, error) {
	f.fss++
	u := imagegc.Usage{CapacityBytes: 100, AvailableBytes: 50}
	if f.full {
		u.AvailableBytes = 0
	}
	return u, nil
}

func (f *failing) with(change func(*imagegc.Config)) func(*imagegc.Config) {
	return func(c *imagegc.Config) {
		c.Images, c.Runtime, c.FS, c.Clock = f, f, f, nil
		change(c)
	}
}

// pause advances the time and waits until all goroutines are idle.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRun_CollectsEachPeriodAndDetectsInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{script: &script{images: []*runtimeapi.Image{web()}}}
		var collections int
		m := f.manager(t, f.with(func(c *imagegc.Config) {
			c.Observer.Collected = func(imagegc.Result, error) { collections++ }
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
		defer cancel()
		require.NoError(t, m.Run(ctx))
		require.Equal(t, 12, collections)
		require.Equal(t, 60, f.images, "one list of each kind per minute")
		require.Equal(t, 60, f.containers)
		require.Equal(t, 12, f.fss)
	})
}

func TestRun_SavesTheAgesAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		f := &failing{script: &script{images: []*runtimeapi.Image{web()}}}
		m := f.manager(t, f.with(func(c *imagegc.Config) { c.State = store }))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, m.Run(ctx))
		require.Equal(t, 2, store.saves)
		for _, age := range store.ages.Images {
			require.Equal(t, 10*time.Second, store.ages.SavedAt.Sub(age.FirstDetected), "the saved age must include the time since the first detection")
		}
		require.Len(t, store.ages.Images, 1)
	})
}

func TestRun_WithNothingToCollectRecordsTheAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{script: &script{}, full: true}
		var collections atomic.Int32
		m := f.manager(t, f.with(func(c *imagegc.Config) {
			c.Policy.HighThresholdPercent = new(100)
			c.Observer.Collected = func(imagegc.Result, error) { collections.Add(1) }
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		pause(time.Hour - time.Second)
		require.Equal(t, 60, f.looks())
		require.Zero(t, collections.Load())
		f.fail(errors.New("restarting"))
		pause(time.Minute)
		f.fail(nil)
		m.Trigger()
		synctest.Wait()
		require.EqualValues(t, 1, collections.Load(), "one collection, by Trigger")
		require.ErrorIs(t, m.Run(t.Context()), imagegc.ErrRunning)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRun_SecondFailureIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{script: &script{}, err: errors.New("restarting")}
		var events safe
		m := f.manager(t, f.with(func(c *imagegc.Config) { c.Events, c.Node = &events, &corev1.Node{} }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.Empty(t, events.all(), "the first failures must not be recorded, because the runtime may be starting")
		pause(5 * time.Minute)
		want := "Warning ImageGCFailed list images: restarting"
		require.Equal(t, recorder{want}, events.all())
		pause(59 * time.Minute)
		require.Len(t, events.all(), 1)
		pause(time.Minute)
		require.Equal(t, recorder{want, want}, events.all())

		f.fail(nil)
		pause(5 * time.Minute)
		f.fail(errors.New("restarting"))
		pause(5 * time.Minute)
		require.Len(t, events.all(), 2, "after a success, a first failure must be recorded again")
		pause(5 * time.Minute)
		require.Len(t, events.all(), 3, "a success must end the suppression of events")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRun_CancellationIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{script: &script{images: []*runtimeapi.Image{web()}}, entered: make(chan string, 1), gate: make(chan struct{})}
		f := &failing{script: s.script, full: true}
		var events recorder
		m := f.manager(t, f.with(func(c *imagegc.Config) {
			c.Images, c.Events, c.Node = s, &events, &corev1.Node{}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		<-s.entered // a deletion is in progress

		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.ErrorIs(t, m.Detect(waiting), context.DeadlineExceeded, "waiting for a pass must end with the context")
		cancel()
		require.NoError(t, <-done)
		require.Empty(t, events)
		require.ErrorIs(t, m.Detect(ctx), context.Canceled)
		require.ErrorIs(t, m.DeleteUnusedImages(ctx), context.Canceled)
		_, err := m.Plan(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}
