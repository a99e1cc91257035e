package podworker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// The sync after a cancelled sync needs a status that is newer than the end of the cancelled
// sync. The sync must not wait for the next regular relist.
func TestAfterSync_CalledAfterACancelledSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("sync")
		b.sync.hang("terminating")
		b.update(podworker.Create, newPod("a"))
		require.Empty(t, b.after)
		b.update(podworker.Kill, newPod("a"))
		require.Equal(t, []types.UID{"a"}, b.after)
		b.kill(newPod("a"), podworker.KillOptions{Grace: new(time.Second)})
		require.Equal(t, []types.UID{"a", "a"}, b.after)
	})
}

// The kubelet's killPodNow waits 10 s for a pod that has finished.
func TestKillPod_FinishedPodReportsAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.update(podworker.Kill, pod)
		b.sync.log()
		began := time.Now()
		require.NoError(t, b.KillPod(b.t.Context(), pod, podworker.KillOptions{}))
		require.Zero(t, time.Since(began))
		require.Empty(t, b.sync.log())
	})
}

func TestKillPod_TerminatedPodReportsAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.fail("terminated", errors.New("volume busy"))
		b.update(podworker.Create, newPod("a"))
		b.update(podworker.Kill, newPod("a"))
		requireKilled(t, b.kill(newPod("a"), podworker.KillOptions{}))
		require.True(t, b.IsPodKnownTerminated("a"))
		require.False(t, b.ShouldPodBeFinished("a"))
	})
}

func TestKillPod_UnknownPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		requireKilled(t, b.kill(newPod("early"), podworker.KillOptions{}))
		require.Equal(t, []string{"terminating early", "terminated early"}, b.sync.log(), "a pod must be terminated although the desired pods are unknown")

		b.SyncKnownPods(desired())
		requireKilled(t, b.kill(newPod("nowhere"), podworker.KillOptions{}))
		require.Empty(t, b.sync.log())

		b.cache.set(func(c *instant) { c.pods["orphan"] = running("orphan") })
		requireKilled(t, b.kill(newPod("orphan"), podworker.KillOptions{}))
		require.Equal(t, []string{"terminating orphan", "terminated orphan"}, b.sync.log())
	})
}

// In the kubelet, KillPod of a static pod that never started never returns success.
func TestKillPod_StaticPodThatNeverStarted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a", static("web")))
		b.update(podworker.Create, newPod("b", static("web")))
		requireKilled(t, b.kill(newPod("b", static("web")), podworker.KillOptions{}))
		require.Equal(t, []string{"sync a"}, b.sync.log())
		require.True(t, b.ShouldPodBeFinished("b"))
		require.True(t, b.ShouldPodContainersBeTerminating("b"))
		b.SyncKnownPods(desired())
		synctest.Wait()
		b.SyncKnownPods(desired())
		pods, lines, due := b.Pods()
		require.Zero(t, pods+lines+due, "an entry of the static pod queue was left")
	})
}

// The status must contain the eviction, which only a sync can set.
func TestEviction_OfAStaticPodThatNeverStarted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a", static("web")))
		b.update(podworker.Create, newPod("b", static("web")))
		b.sync.log()
		evicted := func(s *corev1.PodStatus) { s.Reason = "Evicted" }
		requireKilled(t, b.kill(newPod("b", static("web")), podworker.KillOptions{Evict: true, StatusFn: evicted}))
		require.Equal(t, []string{"terminating b", "terminated b"}, b.sync.log())
		var s corev1.PodStatus
		b.sync.last().StatusFn(&s)
		require.Equal(t, "Evicted", s.Reason)
		require.True(t, b.ShouldPodBeFinished("b"))
		b.update(podworker.Kill, newPod("a", static("web")))
		_, lines, _ := b.Pods()
		require.Zero(t, lines, "an entry of the static pod queue was left")
	})
}

func TestKillPod_PodForgottenBeforeItsFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		killed := b.kill(newPod("a"), podworker.KillOptions{})
		requireUnreported(t, killed)
		b.SyncKnownPods(desired())
		synctest.Wait()
		requireKilled(t, killed)
		b.run()
		require.Empty(t, b.sync.log())
		b.stop()
	})
}

// SyncKnownPods before the first sync must not report a running pod as terminated.
func TestKillPod_RunningPodIsNotForgottenBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cache.set(func(c *instant) { c.pods["a"] = running("a") })
		killed := b.kill(newPod("a"), podworker.KillOptions{})
		b.SyncKnownPods(desired())
		synctest.Wait()
		requireUnreported(t, killed)
		b.run()
		requireKilled(t, killed)
		require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		b.stop()
	})
}

func TestKillPod_ErrorHasTheLastFailure(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.fail("terminating", errors.New("shim is stuck"))
		b.update(podworker.Create, newPod("a"))
		ctx, cancel := context.WithTimeout(b.t.Context(), 25*time.Second)
		defer cancel()
		err := b.KillPod(ctx, newPod("a"), podworker.KillOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "kill pod ns/a: context deadline exceeded; the last attempt failed: shim is stuck")
		require.Len(t, b.sync.log(), 4, "one sync, and three attempts with an interval of 10 s")

		b.sync.set("terminating", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, b.ShouldPodBeFinished("a"), "the pod must terminate although no caller waits")
	})
}

func TestKillPod_ErrorOfAHangingKillIsTheCause(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("terminating")
		b.update(podworker.Create, newPod("a"))
		ctx, cancel := context.WithCancelCause(b.t.Context())
		cancel(errors.New("eviction is over"))
		require.EqualError(t, b.KillPod(ctx, newPod("a"), podworker.KillOptions{}), "kill pod ns/a: eviction is over")
	})
}

func TestKillPod_EveryWaiterIsNotified(t *testing.T) {
	inBubble(t, func(b *bed) {
		gate := make(chan struct{})
		b.sync.set("terminating", func(context.Context, podworker.SyncRequest) (bool, error) { <-gate; return false, nil })
		b.update(podworker.Create, newPod("a"))
		var all []<-chan error
		for range 10 {
			all = append(all, b.kill(newPod("a"), podworker.KillOptions{}))
		}
		close(gate)
		synctest.Wait()
		for _, done := range all {
			requireKilled(t, done)
		}
	})
}

func TestKillPod_WhileRunIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		early := b.kill(newPod("a"), podworker.KillOptions{})
		requireUnreported(t, early) // the kill waits for Run
		b.run()
		requireKilled(t, early)

		b.sync.hang("terminating")
		b.update(podworker.Create, newPod("b"))
		during := b.kill(newPod("b"), podworker.KillOptions{})
		b.stop()
		require.ErrorIs(t, <-during, podworker.ErrStopped)
		require.ErrorIs(t, <-b.kill(newPod("c"), podworker.KillOptions{}), podworker.ErrStopped)

		b.sync.set("terminating", nil)
		b.sync.log()
		b.run() // both pods terminate now
		require.ElementsMatch(t, []string{"terminating b", "terminated b", "terminating c", "terminated c"}, b.sync.log())
		b.stop()
	})
}

func TestRun_SecondConcurrentRunIsRefused(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.ErrorIs(t, b.Run(b.t.Context()), podworker.ErrRunning)
	})
}

func TestRun_CancelsItsSyncsAndTheNextRunContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.update(podworker.Create, newPod("a"))
		b.sync.hang("sync")
		b.run()
		require.Equal(t, []string{"sync a"}, b.sync.log())
		b.stop()
		b.update(podworker.Create, newPod("b"))
		require.Empty(t, b.sync.log(), "before Run, no sync must start")
		b.sync.set("sync", nil)
		b.run()
		require.ElementsMatch(t, []string{"sync a", "sync b"}, b.sync.log())
		b.stop()
	})
}

func TestStaticQueue_OneAfterTheOther(t *testing.T) {
	inBubble(t, func(b *bed) {
		uids := []types.UID{"a", "b", "c", "d"}
		for _, uid := range uids {
			b.update(podworker.Create, newPod(uid, static("web")))
		}
		b.update(podworker.Create, newPod("other", static("db")))
		require.Equal(t, []string{"sync a", "sync other"}, b.sync.log())
		b.update(podworker.Change, newPod("c", static("web")))
		require.Empty(t, b.sync.log(), "an update must not change the order of the queue")

		b.update(podworker.Kill, newPod("b", static("web"))) // removes an entry from the middle of the queue
		b.sync.hang("terminating")
		b.update(podworker.Kill, newPod("a", static("web")))
		require.True(t, b.IsPodForMirrorPodTerminatingByFullName("web_ns"))
		require.False(t, b.IsPodForMirrorPodTerminatingByFullName("db_ns"))
		require.False(t, b.IsPodForMirrorPodTerminatingByFullName("nobody_ns"))
		require.Equal(t, []string{"terminating a"}, b.sync.log(), "no other pod must start during the termination")

		b.sync.set("terminating", nil)
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: newPod("a", static("web")), Kill: podworker.KillOptions{Grace: new(time.Second)}})
		synctest.Wait()
		require.Equal(t, []string{"terminating a", "terminated a", "sync c"}, b.sync.log())
		require.False(t, b.IsPodForMirrorPodTerminatingByFullName("web_ns"))

		known := b.SyncKnownPods(desired(newPod("d", static("web"))))
		synctest.Wait()
		require.Equal(t, podworker.Known{Phase: podworker.Terminating, Orphan: true, HasConfig: true, Static: true}, known["c"])
		require.Equal(t, []string{"terminating c", "terminated c", "sync d"}, removeAll(b.sync.log(), "terminating other", "terminated other"))
	})
}

// removeAll returns list without the given entries.
func removeAll(list []string, drop ...string) []string {
	var kept []string
	for _, s := range list {
		if s != drop[0] && s != drop[1] {
			kept = append(kept, s)
		}
	}
	return kept
}

// A static pod that is already terminating when this agent starts delays its successor like
// any other pod.
func TestStaticQueue_PodThatTerminatesFromTheStart(t *testing.T) {
	inBubble(t, func(b *bed) {
		release := make(chan struct{})
		b.sync.set("terminating", func(context.Context, podworker.SyncRequest) (bool, error) { <-release; return false, nil })
		b.cache.set(func(c *instant) { c.pods["old"] = running("old") })
		killed := b.kill(newPod("old", static("web")), podworker.KillOptions{})
		b.update(podworker.Create, newPod("new", static("web")))
		require.Equal(t, []string{"terminating old"}, b.sync.log())
		require.True(t, b.IsPodForMirrorPodTerminatingByFullName("web_ns"))
		close(release)
		synctest.Wait()
		requireKilled(t, killed)
		require.Equal(t, []string{"terminated old", "sync new"}, b.sync.log())
	})
}

func TestStaticQueue_WaitingPodThatRunsIsStopped(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.cache.set(func(c *instant) { c.pods["b"] = running("b") }) // the pod has been running since before the agent's restart
		b.update(podworker.Create, newPod("a", static("web")))
		b.update(podworker.Create, newPod("b", static("web")))
		requireKilled(t, b.kill(newPod("b", static("web")), podworker.KillOptions{}))
		require.Equal(t, []string{"sync a", "terminating b", "terminated b"}, b.sync.log())
	})
}

// A restarted agent may learn that a pod has a terminal phase before it has inspected the
// runtime, in which the pod is still running.
func TestTerminalPod_MayRunBeforeTheRuntimeIsAsked(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.cache.set(func(c *instant) {
			c.unasked = true
			c.hangs = true
		})
		failed := newPod("a")
		failed.Status.Phase = corev1.PodFailed
		b.update(podworker.Create, failed)
		require.False(t, b.IsPodKnownTerminated("a"))
		killed := b.kill(failed, podworker.KillOptions{})
		b.SyncKnownPods(desired(failed))
		other := b.kill(newPod("b"), podworker.KillOptions{})
		requireUnreported(t, killed)
		requireUnreported(t, other)

		b.cache.set(func(c *instant) {
			c.unasked, c.hangs = false, false
			c.pods["a"] = running("a")
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		requireKilled(t, killed)
		requireKilled(t, other)
		require.Subset(t, b.sync.log(), []string{"terminating a", "terminated a"})
	})
}
