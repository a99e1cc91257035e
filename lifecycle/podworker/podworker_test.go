package podworker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

func TestWorkers_WholeLifeOfAPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		require.Equal(t, []string{"sync a"}, b.sync.log())
		require.Equal(t, podworker.Create, b.sync.last().Type)
		require.Zero(t, b.sync.last().Grace)

		killed := b.kill(pod, podworker.KillOptions{Grace: new(5 * time.Second), Evict: true})
		requireKilled(t, killed)
		require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		require.Equal(t, 5*time.Second, b.sync.turns[1].Grace)
		require.Equal(t, podworker.Kill, b.sync.turns[1].Type)
		require.True(t, b.sync.last().Evict)
		require.Equal(t, []string{"a terminating", "a terminated", "a finished"}, b.moves())
		require.Equal(t, []types.UID{"a"}, b.after, "a finished pod needs no newer status")

		time.Sleep(time.Hour)
		require.Empty(t, b.sync.log(), "a finished pod must not be synced")
		require.Len(t, b.SyncKnownPods(desired(pod)), 1)
		require.Empty(t, b.SyncKnownPods(desired()))
		pods, lines, due := b.Pods()
		require.Zero(t, pods+lines+due)
	})
}

func TestUpdatePod_UpdatesThatTerminate(t *testing.T) {
	for name, end := range map[string]func(*bed){
		"kill":                 func(b *bed) { b.update(podworker.Kill, newPod("a")) },
		"deletion":             func(b *bed) { b.update(podworker.Change, newPod("a", deleted(3))) },
		"succeeded":            func(b *bed) { b.update(podworker.Change, newPod("a", phase(corev1.PodSucceeded))) },
		"failed":               func(b *bed) { b.update(podworker.Sync, newPod("a", phase(corev1.PodFailed))) },
		"not desired any more": func(b *bed) { b.SyncKnownPods(desired()); synctest.Wait() },
		"the runtime's view": func(b *bed) {
			b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running("a")})
			synctest.Wait()
		},
		"run to completion": func(b *bed) {
			b.sync.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) { return true, nil })
			b.update(podworker.Sync, newPod("a"))
			b.sync.log()
			b.sync.calls = []string{"terminating a", "terminated a"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.update(podworker.Create, newPod("a"))
				b.sync.log()
				end(b)
				require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
				require.Equal(t, []string{"a terminating", "a terminated", "a finished"}, b.moves())
			})
		})
	}
}

func TestUpdatePod_NewestUpdateCounts(t *testing.T) {
	inBubble(t, func(b *bed) {
		gate := make(chan struct{})
		b.sync.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) { <-gate; return false, nil })
		b.update(podworker.Create, newPod("a"))
		var last *corev1.Pod
		for i := range 20 {
			last = newPod("a", func(p *corev1.Pod) { p.Generation = int64(i) })
			b.update(podworker.Change, last)
		}
		close(gate)
		synctest.Wait()
		require.Len(t, b.sync.log(), 2)
		require.Same(t, last, b.sync.last().Pod)
		require.Equal(t, podworker.Change, b.sync.last().Type)
	})
}

func TestSync_PodsAreSyncedInParallel(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("sync")
		for _, uid := range []types.UID{"a", "b", "c"} {
			b.update(podworker.Create, newPod(uid))
		}
		require.ElementsMatch(t, []string{"sync a", "sync b", "sync c"}, b.sync.log())
	})
}

func TestSync_ResyncAndRetry(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		b.sync.log()
		time.Sleep(59 * time.Second)
		require.Empty(t, b.sync.log())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"sync a"}, b.sync.log())
		require.Equal(t, podworker.Sync, b.sync.last().Type)

		b.sync.fail("sync", errors.New("no"))
		b.update(podworker.Sync, newPod("a"))
		time.Sleep(31 * time.Second)
		require.Len(t, b.sync.log(), 4)

		b.sync.fail("sync", &podworker.RetryError{At: time.Now().Add(33 * time.Second)})
		b.update(podworker.Sync, newPod("a"))
		b.sync.log()
		time.Sleep(32 * time.Second)
		require.Empty(t, b.sync.log())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, b.sync.log(), 1)
	})
}

func TestUpdatePod_DoesNotDelayTheResync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		b.update(podworker.Create, newPod("b"))
		time.Sleep(30 * time.Second)
		b.update(podworker.Sync, newPod("a"))
		b.sync.log()
		time.Sleep(31 * time.Second)
		require.Equal(t, []string{"sync b"}, b.sync.log())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"sync a"}, b.sync.log())
	})
}

func TestSync_CancelledWhenThePodTerminates(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("sync")
		b.update(podworker.Create, newPod("a"))
		killed := b.kill(newPod("a"), podworker.KillOptions{})
		requireKilled(t, killed)
		require.Equal(t, []string{"sync a", "terminating a", "terminated a"}, b.sync.log())
		require.ErrorIs(t, b.turns[0].Err, context.Canceled)
	})
}

func TestKillPod_ShorterGraceCancelsTheSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("terminating")
		pod := newPod("a")
		b.update(podworker.Create, pod)
		first := b.kill(pod, podworker.KillOptions{})
		require.Equal(t, 30*time.Second, b.sync.last().Grace)
		second := b.kill(pod, podworker.KillOptions{Grace: new(time.Minute)})
		require.Equal(t, []string{"sync a", "terminating a"}, b.sync.log(), "a longer grace period must be ignored")
		b.update(podworker.Change, newPod("a", deleted(4)))
		require.Equal(t, []string{"terminating a"}, b.sync.log())
		require.Equal(t, 4*time.Second, b.sync.last().Grace)
		requireUnreported(t, first)

		b.sync.set("terminating", nil)
		third := b.kill(pod, podworker.KillOptions{Grace: new(time.Duration(0))})
		requireKilled(t, first)
		requireKilled(t, second)
		requireKilled(t, third)
		require.Equal(t, time.Second, b.sync.last().Grace)
	})
}

func TestUpdatePod_DoesNotReviveAKilledPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.fail("terminating", errors.New("no"))
		b.update(podworker.Create, newPod("a"))
		b.update(podworker.Kill, newPod("a"))
		b.update(podworker.Change, newPod("a"))
		b.sync.log()
		b.sync.set("terminating", nil)
		b.update(podworker.Sync, newPod("a"))
		require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
	})
}

func TestKillPod_LastStatusFnCounts(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("terminating")
		b.update(podworker.Create, newPod("a"))
		say := func(s string, grace time.Duration) podworker.KillOptions {
			return podworker.KillOptions{StatusFn: func(st *corev1.PodStatus) { st.Reason = s }, Grace: &grace}
		}
		b.kill(newPod("a"), say("first", 2*time.Second))
		b.sync.set("terminating", nil)
		b.kill(newPod("a"), say("second", time.Second))
		b.SyncKnownPods(desired())
		time.Sleep(time.Minute)
		var status corev1.PodStatus
		b.sync.last().StatusFn(&status)
		require.Equal(t, "second", status.Reason)
	})
}

func TestUpdatePod_PodEndedBeforeTheAgentStarted(t *testing.T) {
	inBubble(t, func(b *bed) {
		done := newPod("a", phase(corev1.PodSucceeded))
		b.update(podworker.Create, done)
		require.Equal(t, []string{"terminated a"}, b.sync.log())

		b.cache.set(func(c *instant) { c.pods["b"] = running("b") })
		b.update(podworker.Create, newPod("b", phase(corev1.PodFailed)))
		require.Equal(t, []string{"terminating b", "terminated b"}, b.sync.log(), "the pod is still running, and must be terminated")
	})
}

// A failed inspection proves nothing: a pod that may be running is stopped.
func TestUpdatePod_PodEndedBeforeTheAgentStartedAndCannotBeInspected(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.SyncKnownPods(desired())
		b.cache.set(func(c *instant) { c.err = errors.New("cannot inspect") })
		b.update(podworker.Create, newPod("a", phase(corev1.PodFailed)))
		requireKilled(t, b.kill(newPod("b"), podworker.KillOptions{}))
		b.update(podworker.Create, newPod("first", static("web")))
		b.update(podworker.Create, newPod("second", static("web")))
		requireKilled(t, b.kill(newPod("second", static("web")), podworker.KillOptions{}))
		require.Equal(t, []string{
			"terminating a", "terminated a", "terminating b", "terminated b", "terminating second", "terminated second",
		}, b.sync.log())
	})
}

func TestKillOrphans_RuntimeOnlyPods(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := running("a")
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: s, Kill: podworker.KillOptions{Grace: new(time.Minute)}})
		synctest.Wait()
		require.Equal(t, []string{"runtime a"}, b.sync.log())
		require.Nil(t, b.sync.last().Pod)
		require.Equal(t, time.Minute, b.sync.last().Grace)
		pods, _, _ := b.Pods()
		require.Zero(t, pods, "the pod must be forgotten at once")

		b.sync.fail("runtime", errors.New("no"))
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: s})
		synctest.Wait()
		require.Equal(t, time.Second, b.sync.last().Grace)
		known := b.SyncKnownPods(desired())
		require.Equal(t, map[types.UID]podworker.Known{"a": {Phase: podworker.Terminating, Orphan: true}}, known)
		synctest.Wait() // SyncKnownPods has retried

		// The pod's spec arrives later. From then on it terminates like any other pod.
		b.sync.set("runtime", nil)
		b.sync.log()
		b.update(podworker.Change, newPod("a"))
		require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		require.True(t, b.SyncKnownPods(desired(newPod("a")))["a"].HasConfig)
	})
}

func TestUpdatePod_RunningIsIgnoredIfPodIsSet(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: newPod("a"), Running: running("a")})
		synctest.Wait()
		require.Equal(t, []string{"sync a"}, b.sync.log())
	})
}

func TestUpdatePod_InvalidUpdatesAreIgnored(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.UpdatePod(podworker.Update{Type: podworker.Create})
		b.UpdatePod(podworker.Update{Type: podworker.Sync, Running: running("a")})
		b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: newPod("")})
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running("")})
		b.UpdatePod(podworker.Update{Type: 9, Pod: newPod("a")})
		require.Len(t, b.ignored, 5)
		pods, _, _ := b.Pods()
		require.Zero(t, pods)
		require.Error(t, b.KillPod(b.t.Context(), nil, podworker.KillOptions{}))
		require.Error(t, b.KillPod(b.t.Context(), newPod(""), podworker.KillOptions{}))
	})
}

func TestUpdatePod_SameUIDAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.sync.fail("terminating", errors.New("no"))
		b.update(podworker.Kill, pod)
		b.update(podworker.Create, pod) // the manifest is created again during the termination
		require.Len(t, b.ignored, 1)
		require.Contains(t, b.SyncKnownPods(desired(pod)), pod.UID)
		b.sync.set("terminating", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, b.ShouldPodBeFinished("a"))
		b.sync.log()
		require.NotContains(t, b.SyncKnownPods(desired(pod)), pod.UID, "the pod must be forgotten, so that it can start again")
		b.update(podworker.Create, pod)
		require.Equal(t, []string{"sync a"}, b.sync.log())
	})
}

// The caller of KillPod and the pod's worker both call the observer, without a
// lock.
func TestObserver_MovedIsCalledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []podworker.Phase
		w, err := podworker.New(podworker.Config{
			Syncer: &syncer{}, Cache: &instant{}, Observer: podworker.Observer{PhaseChanged: func(_ types.UID, _ *corev1.Pod, p podworker.Phase) {
				if p == podworker.Terminating {
					time.Sleep(time.Second)
				}
				told = append(told, p)
			}},
		})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		go w.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: newPod("a")})
		require.NoError(t, w.Run(ctx))
		require.Equal(t, []podworker.Phase{podworker.Terminating, podworker.Terminated, podworker.Finished}, told)
	})
}

// A sync that is requested between the end of the previous sync and the return
// of its goroutine replaces the next scheduled sync.
func TestSync_ReplacesTheDueSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &syncer{on: map[string]func(context.Context, podworker.SyncRequest) (bool, error){}}
		var w *podworker.Workers
		w, err := podworker.New(podworker.Config{
			Syncer: s, Cache: &instant{}, Observer: podworker.Observer{SyncEnded: func(i podworker.SyncInfo) {
				if i.Type != podworker.Create {
					return
				}
				w.UpdatePod(podworker.Update{Type: podworker.Change, Pod: i.Pod})
				s.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) {
					time.Sleep(10 * time.Minute)
					return false, nil
				})
			}},
		})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer stop()
		w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: newPod("a")})
		require.NoError(t, w.Run(ctx))
		require.Len(t, s.log(), 2)
	})
}

func TestAfterSync_CalledIfTheSyncActed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		require.Empty(t, b.after)
		b.sync.set("sync", func(_ context.Context, req podworker.SyncRequest) (bool, error) {
			req.Acted()
			return false, errors.New("half of it")
		})
		b.update(podworker.Sync, newPod("a"))
		require.Equal(t, []types.UID{"a"}, b.after)
		podworker.SyncRequest{}.Acted() // has no effect
	})
}

// The Syncer has refreshed the cache after its last change.
func TestAfterSync_RefreshedTurn(t *testing.T) {
	inBubble(t, func(b *bed) {
		var refreshed time.Time
		b.sync.set("terminating", func(_ context.Context, req podworker.SyncRequest) (bool, error) {
			req.Acted()
			refreshed = time.Now()
			req.Refreshed(refreshed)
			time.Sleep(time.Second)
			return false, nil
		})
		b.update(podworker.Create, newPod("a"))
		b.update(podworker.Kill, newPod("a"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"sync a", "terminating a", "terminated a"}, b.sync.log())
		require.Empty(t, b.after)
		require.Equal(t, refreshed, b.cache.asked[2])
		podworker.SyncRequest{}.Refreshed(refreshed) // has no effect
	})
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podworker.New(podworker.Config{ResyncPeriod: -1, BackoffPeriod: -1, TransientPeriod: -1, FreshTimeout: -1})
	for _, field := range []string{"Syncer", "Cache", "ResyncPeriod", "BackoffPeriod", "TransientPeriod", "FreshTimeout"} {
		require.ErrorContains(t, err, "field "+field)
	}
}

func TestString_UpdateTypesAndPhases(t *testing.T) {
	t.Parallel()
	for v, want := range map[podworker.UpdateType]string{
		podworker.Sync: "sync", podworker.Create: "create", podworker.Change: "update", podworker.Kill: "kill", 9: "unknown",
	} {
		require.Equal(t, want, v.String())
	}
	for v, want := range map[podworker.Phase]string{
		podworker.Syncing: "sync", podworker.Terminating: "terminating", podworker.Terminated: "terminated",
		podworker.Finished: "finished", 9: "unknown",
	} {
		require.Equal(t, want, v.String())
	}
}

// TestDeadline_ShorterGraceMovesItDuringASync also checks that the sync is not cancelled.
func TestDeadline_ShorterGraceMovesItDuringASync(t *testing.T) {
	inBubble(t, func(b *bed) {
		var deadlines []*lifecycle.Deadline
		b.sync.set("terminating", func(ctx context.Context, req podworker.SyncRequest) (bool, error) {
			deadlines = append(deadlines, req.Deadline())
			until, stop := req.Deadline().Context(ctx)
			defer stop()
			<-until.Done()
			if len(deadlines) == 1 {
				return false, errors.New("not yet")
			}
			return false, ctx.Err()
		})
		pod := newPod("a")
		b.update(podworker.Create, pod)
		require.Nil(t, b.sync.last().Deadline(), "a pod that is not terminating must have no deadline")
		b.sync.log()
		began := time.Now()
		first := b.kill(pod, podworker.KillOptions{})
		time.Sleep(5 * time.Second)
		second := b.kill(pod, podworker.KillOptions{Grace: new(4 * time.Second)})
		requireUnreported(t, first)
		time.Sleep(4*time.Second - time.Millisecond)
		require.Equal(t, []string{"terminating a"}, b.sync.log(), "there must be one sync, which is not cancelled")
		time.Sleep(time.Minute)
		requireKilled(t, first)
		requireKilled(t, second)
		require.Equal(t, began.Add(9*time.Second), deadlines[0].At())
		require.Len(t, deadlines, 2)
		require.Same(t, deadlines[0], deadlines[1], "the next sync must have the same deadline")
	})
}

// TestDeadline_PodAlreadyBeingDeletedKeepsItsGracePeriod checks a pod whose deletion began
// before a restart of the agent.
func TestDeadline_PodAlreadyBeingDeletedKeepsItsGracePeriod(t *testing.T) {
	inBubble(t, func(b *bed) {
		var left time.Duration
		b.sync.set("terminating", func(_ context.Context, req podworker.SyncRequest) (bool, error) {
			left = req.Deadline().Left()
			return false, nil
		})
		pod := newPod("a", deleted(30))
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(7 * time.Second)}
		b.update(podworker.Create, pod)
		require.Equal(t, 7*time.Second, left)
	})
}

func TestTurnInfo_FirstIsSetForTheFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := newPod("a")
		b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
		b.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
		b.run()
		b.update(podworker.Sync, pod)
		b.stop()
		var first []bool
		for _, turn := range b.turns {
			require.Equal(t, podworker.Sync, turn.Type)
			first = append(first, turn.First)
		}
		require.Equal(t, []bool{true, false}, first)
	})
}
