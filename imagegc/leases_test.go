package imagegc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/imagegc"
)

func (r *rig) deleteUnused() string {
	r.t.Helper()
	require.NoError(r.t, r.DeleteUnusedImages(r.t.Context()))
	return r.there()
}

func TestAcquire_ImageOfAContainerThatIsAboutToBeCreated(t *testing.T) { // kubernetes#123631
	r := newRig(t, []string{"old:1 1GiB", "b:1 1GiB"})
	r.old()
	release := r.Acquire("old:1", "pod/app", 10*time.Minute)
	require.Equal(t, "old:1", r.deleteUnused())
	r.create("old:1")
	release()
	require.Equal(t, "old:1", r.deleteUnused())
}

func TestAcquire_LeaseEndsAfterItsTTL(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.old()
	r.Acquire("a:1", "pod/app", 10*time.Minute)
	r.Acquire("b:1", "pod/app", 0)
	r.clock.Step(10*time.Minute - 1)
	require.Equal(t, "a:1 b:1", r.deleteUnused())
	r.clock.Step(1)
	require.Equal(t, "b:1", r.deleteUnused())
	r.clock.Step(24*time.Hour - 10*time.Minute)
	require.Empty(t, r.deleteUnused())
}

func TestAcquire_SeveralOwners(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB tag=a:2"})
	r.old()
	first := r.Acquire("a:1", "pod/one", time.Hour)
	second := r.Acquire("a:2", "pod/two", 2*time.Hour)
	third := r.Acquire(r.id("a:1"), "pod/two", time.Minute)
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"pod/one", "pod/two"}, plan.Decisions[0].Image.LeasedBy)
	require.Equal(t, r.clock.Now().Add(2*time.Hour), plan.Decisions[0].Until)
	first()
	first()
	third()
	require.Equal(t, "a:1", r.deleteUnused())
	second()
	require.Empty(t, r.deleteUnused())
}

func TestAcquire_AgainExtendsTheLease(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	former := r.Acquire("a:1", "pod/app", 10*time.Minute)
	r.clock.Step(9 * time.Minute)
	release := r.Acquire("a:1", "pod/app", 10*time.Minute)
	former() // the previous lease no longer counts
	r.clock.Step(9 * time.Minute)
	require.Equal(t, "a:1", r.deleteUnused())
	release()
	require.Empty(t, r.deleteUnused())
}

func TestAcquire_ImageThatIsNotPulledYet(t *testing.T) {
	r := newRig(t, nil, func(c *imagegc.Config) { c.Policy.MinAge = new(time.Duration(0)) })
	r.Acquire("a:1", "pod/app", time.Hour)
	_, err := r.node.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "a:1"}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "a:1", r.deleteUnused())
}

func TestAcquire_DuringAPassCounts(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.old()
	var m *imagegc.Manager
	m = r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) { m.Acquire("b:1", "pod/app", time.Hour) }
	})
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, "b:1", r.there(), "the image was selected, but its deletion had not started")
}

// slow is a runtime that completes removals on request.
type slow struct {
	*script
	entered chan string
	gate    chan struct{}
}

func (s *slow) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	s.entered <- spec.Image
	select {
	case <-s.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAcquire_WaitsOnlyForADeletionOfItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{script: &script{images: []*runtimeapi.Image{web()}}, entered: make(chan string), gate: make(chan struct{})}
		m := s.manager(t, func(c *imagegc.Config) { c.Images = s })
		done := make(chan error, 1)
		go func() { done <- m.DeleteUnusedImages(t.Context()) }()
		<-s.entered

		m.Acquire("other:1", "pod/other", time.Hour) // must return at once
		acquired := make(chan struct{})
		go func() {
			m.Acquire("web:1", "pod/app", time.Hour)
			close(acquired)
		}()
		synctest.Wait()
		select {
		case <-acquired:
			t.Fatal("Acquire must wait for the deletion")
		default:
		}
		close(s.gate)
		<-acquired
		require.NoError(t, <-done)
	})
}

func TestCollect_HungDeletionTimesOutAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{script: &script{images: []*runtimeapi.Image{web()}}, entered: make(chan string, 9), gate: make(chan struct{})}
		m := s.manager(t, func(c *imagegc.Config) { c.Images, c.Clock = s, nil })
		began := time.Now()
		require.ErrorIs(t, m.DeleteUnusedImages(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 2*time.Minute, time.Since(began))
		require.NoError(t, m.DeleteUnusedImages(t.Context()))
		require.Len(t, s.entered, 1)
		time.Sleep(time.Minute)
		require.Error(t, m.DeleteUnusedImages(t.Context()))
		require.Len(t, s.entered, 2)
	})
}

// A deletion that is cancelled with its pass does not count as a failure of the image.
func TestCollect_CancelledDeletionDoesNotBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{script: &script{images: []*runtimeapi.Image{web()}}, entered: make(chan string, 9), gate: make(chan struct{}, 1)}
		m := s.manager(t, func(c *imagegc.Config) { c.Images = s })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.DeleteUnusedImages(ctx) }()
		<-s.entered
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		s.gate <- struct{}{}
		require.NoError(t, m.DeleteUnusedImages(t.Context()))
		require.Len(t, s.entered, 1, "the next pass must retry without back-off")
	})
}
