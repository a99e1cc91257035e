package status_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/status"
)

// TestFlush_DoesNotWaitForOtherPods checks that a pod that changes during a flush, and whose
// call hangs, does not delay the shutdown of a node.
func TestFlush_DoesNotWaitForOtherPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m *status.Manager
		pods, start := numbered(2), time.Now()
		m, p := sinkOf(t, func(ctx context.Context, c status.Change) error {
			if c.Pod.Name == "p1" {
				<-ctx.Done()
				return ctx.Err()
			}
			m.SetPodStatus(pods[1], simple("Running", "True"))
			time.Sleep(time.Second)
			return nil
		})
		m.SetPodStatus(pods[0], simple("Running", "True"))
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, p.Flush(ctx), "status: 1 of 1 pods not published", "the pod must still be unpublished")
	})
}

// TestPublisher_PodReportedAgainWhileItIsForgotten checks a static pod that is created again
// with the same UID. Its new status must not be forgotten together with the old status.
func TestPublisher_PodReportedAgainWhileItIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := status.New(status.Config{})
		require.NoError(t, err)
		sink := &forgetful{}
		p, err := status.NewPublisher(status.PublisherConfig{Statuses: m, Sink: sink})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		pod := numbered(1)[0]
		m.SetPodStatus(pod, simple("Running", "True"))
		synctest.Wait()
		m.RemoveOrphanedStatuses(func(types.UID) bool { return false })
		time.Sleep(1500 * time.Millisecond) // now the status is published, and Forget is running
		m.SetPodStatus(pod, simple("Running", "False"))
		require.NoError(t, p.Flush(t.Context()))
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []string{"publish", "forget", "forgotten", "publish"}, sink.log)
	})
}

// forgetful is a sink whose methods take a second each.
type forgetful struct {
	mu  sync.Mutex
	log []string
}

func (s *forgetful) say(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, words...)
}

func (s *forgetful) Publish(context.Context, status.Change) error {
	s.say("publish")
	time.Sleep(time.Second)
	return nil
}

func (s *forgetful) Forget(types.UID) {
	s.say("forget")
	time.Sleep(time.Second)
	s.say("forgotten")
}

// TestPublisher_PodReportedAgainWhileItIsFoundGone checks that a request during the call that
// returns ErrGone counts as newer than that call.
func TestPublisher_PodReportedAgainWhileItIsFoundGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		m, p := sinkOf(t, func(context.Context, status.Change) error {
			time.Sleep(time.Second)
			if calls++; calls == 1 {
				return status.ErrGone
			}
			return nil
		})
		pod := numbered(1)[0]
		m.SetPodStatus(pod, simple("Running", "True"))
		done := make(chan error)
		go func() { done <- p.Sync(t.Context()) }()
		synctest.Wait()
		p.Trigger(pod.UID)
		require.NoError(t, <-done)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, 2, calls)
	})
}

// TestAPIServer_404OfAProxyDoesNotCount checks that a 404 counts only if it comes from an API
// server, not from a load balancer that is misconfigured for a minute.
func TestAPIServer_404OfAProxyDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		seen := a.put(numbered(1)[0])
		n := newNode(t, a)
		between := true
		a.before = func(_ context.Context, verb, name string) error {
			if !between {
				return nil
			}
			return apierrors.NewGenericServerResponse(404, verb, podResource, name, "default backend", 0, true)
		}
		n.SetPodStatus(seen, simple("Running", "True"))
		require.Error(t, n.Sync(t.Context()))
		between = false
		require.NoError(t, n.Flush(t.Context()))
		require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase)
	})
}

// TestAPIServer_KeepsNothingOfUnpublishedPods checks that RecordObject stores nothing of pods
// whose status this node does not report, and of pods that were already forgotten. A watch may
// return both.
func TestAPIServer_KeepsNothingOfUnpublishedPods(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.Status = simple("Pending", "True")
	seen := a.put(pod)
	n := newNode(t, a)
	late := seen.DeepCopy()
	late.ResourceVersion = "1000"
	n.sink.RecordObject(pod.UID, late)
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "the patch must be based on the given pod")

	n.RemoveOrphanedStatuses(func(types.UID) bool { return false })
	n.sink.RecordObject(pod.UID, late)
	n.SetPodStatus(a.pod("p0"), simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked())

	// RecordObject stores objects of a pod from its first publication on, even if that publication
	// sent no request.
	shown := a.edit("p0", func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
	n.sink.RecordObject(pod.UID, shown)
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked())
	require.Equal(t, corev1.ConditionTrue, a.pod("p0").Status.Conditions[0].Status)
}

// TestFlush_PodRemovedAndReportedAgain checks that a newer status of a static pod replaces
// older statuses of the same UID.
func TestFlush_PodRemovedAndReportedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := true
		m, p := sinkOf(t, func(context.Context, status.Change) error {
			if broken {
				return context.DeadlineExceeded
			}
			return nil
		})
		pod := numbered(1)[0]
		m.SetPodStatus(pod, simple("Pending", "False"))
		m.SetPodStatus(pod, simple("Running", "True"))
		require.Error(t, p.Sync(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error)
		go func() { done <- p.Flush(ctx) }()
		synctest.Wait()
		broken = false
		m.RemovePodStatus(pod.UID)
		m.SetPodStatus(pod, simple("Pending", "False"))
		require.NoError(t, <-done)
	})
}

// TestPublisher_StatusChangesWhileThePodIsFoundGone checks that the Publisher calls the sink
// exactly once more.
func TestPublisher_StatusChangesWhileThePodIsFoundGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		m, p := sinkOf(t, func(context.Context, status.Change) error {
			time.Sleep(time.Second)
			calls++
			return status.ErrGone
		})
		pod := numbered(1)[0]
		m.SetPodStatus(pod, simple("Pending", "False"))
		done := make(chan error)
		go func() { done <- p.Sync(t.Context()) }()
		synctest.Wait()
		m.SetPodStatus(pod, simple("Running", "False"))
		require.NoError(t, <-done)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, 2, calls)
		m.SetPodStatus(pod, simple("Running", "True"))
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, 2, calls)
	})
}
