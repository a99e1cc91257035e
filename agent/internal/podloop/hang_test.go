package podloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// hangs adds an admission handler that hangs on pods whose name starts with "hang" until the
// gate is closed. The handler observes its context or ignores it.
func hangs(gate chan struct{}, follows string) func(*Config) {
	return func(c *Config) {
		c.Admission = append(c.Admission, lifecycle.NamedHandler{Name: "vendor", Handler: lifecycle.AdmitFunc(
			func(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
				if !strings.HasPrefix(attrs.Pod.Name, "hang") {
					return lifecycle.PodAdmitResult{Admit: true}
				}
				if follows == "ignores its ctx" {
					<-gate
					return lifecycle.PodAdmitResult{Admit: true}
				}
				select {
				case <-gate:
					return lifecycle.PodAdmitResult{Admit: true}
				case <-ctx.Done():
					return lifecycle.PodAdmitResult{Reason: "TooLate"}
				}
			})})
	}
}

// inHang runs f while a handler hangs, with the pod "web" already admitted.
func inHang(t *testing.T, f func(b *bed)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := newBed(t, newNode(t), newStore(), t.TempDir(), hangs(gate, "ignores its ctx"))
		b.start()
		b.set(newPod("web", "web:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever)))
		b.awaitRunning("web")
		b.set(newPod("web", "web:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever)), newPod("hang", "web:1"))
		time.Sleep(time.Minute)
		require.Equal(t, Offered, b.await("hang", Offered).State)
		f(b)
		close(gate)
		b.stop()
	})
}

func TestHungHandler_DoesNotDelayEviction(t *testing.T) {
	inHang(t, func(b *bed) {
		began := time.Now()
		web, _ := b.Find("uid-web")
		require.NoError(b.t, b.Evict(b.t.Context(), web, podworker.KillOptions{Grace: new(time.Second)}))
		require.Less(b.t, time.Since(began), 5*time.Second)
		b.eventually("the pod's leftovers are removed", func() bool { return b.CleanedUp("uid-web") })
		require.Less(b.t, time.Since(began), 10*time.Second)
	})
}

func TestHungHandler_DoesNotDelayHousekeeping(t *testing.T) {
	inHang(t, func(b *bed) {
		b.orphan("orphan")
		b.eventually("the orphan is gone", func() bool { return len(b.images("orphan")) == 0 })
	})
}

func TestHungHandler_DoesNotDelayExplain(t *testing.T) {
	inHang(t, func(b *bed) {
		began := time.Now()
		e, err := b.Explain(b.t.Context(), "uid-hang")
		require.NoError(b.t, err)
		require.Zero(b.t, time.Since(began))
		require.Equal(b.t, []string{
			"it waits for admission: its source defines it",
			"admission handler vendor has not returned for 1m0s",
		}, e.Why)
	})
}

func TestHungHandler_DoesNotDelayAdmittedPods(t *testing.T) {
	inHang(t, func(b *bed) {
		require.NoError(b.t, b.node.Kill("default/web/main", 1))
		b.eventually("the container restarts", func() bool {
			p, _ := b.Pod("uid-web")
			return len(p.Spec.Status.ContainerStatuses) > 0 && p.Spec.Status.ContainerStatuses[0].RestartCount == 1 && len(b.images("web")) == 1
		})
		b.await("job", Ended)
		b.set(newPod("hang", "web:1"))
		b.awaitGone("web")
		require.Equal(b.t, Offered, b.await("hang", Offered).State)
	})
}

func TestHungHandler_IsNamedByChecks(t *testing.T) {
	inHang(t, func(b *bed) {
		c := b.check("admission")
		require.ErrorContains(b.t, c.Err, "admission handler vendor has not returned for 1m0s")
		require.True(b.t, c.Fatal)
	})
}

func (b *bed) check(name string) Check {
	b.t.Helper()
	for _, c := range b.Checks() {
		if c.Name == name {
			return c
		}
	}
	require.Fail(b.t, "no check "+name)
	return Check{}
}

// A result after the deadline counts as a rejection, and the next pods are handled at the
// deadline.
func TestAdmissionQueue_Deadline(t *testing.T) {
	t.Parallel()
	for _, follows := range []string{"follows its ctx", "ignores its ctx"} {
		t.Run(follows, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				b := newBed(t, newNode(t), newStore(), t.TempDir(), hangs(gate, follows))
				b.start()
				b.give(podspec.SourceFile, newPod("hang", "web:1"), newPod("web", "web:1"))
				time.Sleep(handlerDeadline + time.Second)
				close(gate)
				p := b.await("hang", Refused)
				require.Equal(t, "UnexpectedAdmissionError", p.Spec.Status.Reason)
				require.Contains(t, p.Spec.Status.Message, "Admission handler vendor did not answer within 30s")
				b.awaitRunning("web")
				require.NoError(t, b.check("admission").Err)
				b.stop()
			})
		})
	}
}

// An admission that is interrupted because the agent stops does not reject the pod.
func TestAdmissionQueue_StopsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, node, root := newStore(), newNode(t), t.TempDir()
		b := newBed(t, node, store, root, hangs(make(chan struct{}), "follows its ctx"))
		b.start()
		b.set(newPod("hang", "web:1"), newPod("web", "web:1"))
		time.Sleep(time.Second)
		b.stop()
		require.Equal(t, Offered, b.await("hang", Offered).State)
		require.Empty(t, b.recorder.statuses)
		require.Empty(t, b.recorder.events)
	})
}

// The cost of an admission depends on the number of admitted pods, and not on the number of
// offered pods.
func TestAdmissionQueue_CostIsLinearInOfferedPods(t *testing.T) {
	t.Parallel()
	const offered, places = 2000, 110
	var asked, seen atomic.Int64
	inBubble(t, func(b *bed) {
		b.places.Store(places)
		var pods []*corev1.Pod
		for i := range offered {
			pods = append(pods, newPod(fmt.Sprintf("p%04d", i), "web:1"))
		}
		b.set(pods...)
		b.eventually("every pod is admitted or refused", func() bool { return b.admissionQueue.isIdle() })
		states := map[State]int{}
		for _, p := range b.Pods() {
			states[p.State]++
		}
		require.Equal(t, map[State]int{Admitted: places, Refused: offered - places}, states)
		require.LessOrEqual(t, asked.Load(), int64(2*offered))
		require.LessOrEqual(t, seen.Load(), int64(offered*(places+1)))
	}, ordinaryPods, func(c *Config) {
		get := c.Node.Get
		c.Node.Get = func(ctx context.Context) (*corev1.Node, error) { asked.Add(1); return get(ctx) }
		c.Admission = []lifecycle.NamedHandler{{Name: "count", Handler: lifecycle.AdmitFunc(
			func(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
				seen.Add(int64(len(attrs.OtherPods)))
				return lifecycle.PodAdmitResult{Admit: true}
			})}}
	})
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.places.Store(1)
		b.give(podspec.SourceAPI, newPod("web", "slow:1"))
		b.awaitRunning("web")
		critical := newPod("critical", "web:1", func(p *corev1.Pod) { p.Spec.Priority = new(podspec.SystemCriticalPriority) })
		b.give(podspec.SourceAPI, newPod("web", "slow:1"), critical)
		b.awaitRunning("critical")
		p := b.await("web", Removed)
		require.Equal(t, corev1.PodFailed, p.Spec.Status.Phase)
		require.Equal(t, lifecycle.Preempting, p.Spec.Status.Reason)
		require.True(t, b.recorder.hasEvent(lifecycle.PreemptingMessage))
		// The critical pod has used the free place.
		b.give(podspec.SourceAPI, newPod("web", "slow:1"), critical, newPod("other", "web:1"))
		b.await("other", Refused)
	}, twoSources(podspec.SourceFile, podspec.SourceAPI))
}

func TestOrdinaryStaticPods_DoNotPreempt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.places.Store(1)
		b.set(newPod("a", "web:1"))
		b.awaitRunning("a")
		require.Empty(t, b.Active()[0].Annotations)
		b.set(newPod("a", "web:1"), newPod("b", "web:1"))
		require.Equal(t, "OutOfpods", b.await("b", Refused).Spec.Status.Reason)
	}, ordinaryPods)
	inBubble(t, func(b *bed) {
		b.set(newPod("a", "web:1"))
		b.awaitRunning("a")
		require.True(t, podspec.IsStatic(b.Active()[0]))
		require.Equal(t, corev1.PodRunning, b.Active()[0].Status.Phase)
	})
}

func TestKill(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "slow:1"))
		b.awaitRunning("web")
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		err := b.Kill(ctx, "uid-web", podworker.KillOptions{})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "kill pod default/web")
		e, err := b.Explain(b.t.Context(), "uid-web")
		require.NoError(t, err)
		require.Equal(t, []string{"it was killed"}, e.Why)
		require.Equal(t, "its grace period is over, and containers that still run are killed", e.Next[1].What)
		require.WithinDuration(t, time.Now().Add(29*time.Second), e.Next[1].At, time.Second)
		require.NoError(t, b.Kill(b.t.Context(), "uid-web", podworker.KillOptions{}))
		require.Equal(t, Ended, b.await("web", Ended).State)
		require.NoError(t, b.Kill(b.t.Context(), "uid-web", podworker.KillOptions{}), "killing a terminated pod must succeed")
		require.Equal(t, 1, b.sandboxes(), "the sandbox must be kept while the pod is defined")
		require.ErrorContains(t, b.Kill(b.t.Context(), "nobody", podworker.KillOptions{}), "the pod is unknown")
	})
}

// A pod that is killed before it was admitted does not start.
func TestKill_OfferedPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := newBed(t, newNode(t), newStore(), t.TempDir(), hangs(gate, "ignores its ctx"), twoSources(podspec.SourceAPI))
		b.start()
		b.give(podspec.SourceAPI, newPod("hang", "web:1"))
		require.NoError(t, b.Kill(t.Context(), "uid-hang", podworker.KillOptions{}))
		close(gate)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodFailed, b.await("hang", Ended).Spec.Status.Phase)
		require.Zero(t, b.sandboxes())
		require.Empty(t, b.admissionQueue.active)
		b.stop()
		require.ErrorIs(t, b.Kill(t.Context(), "uid-hang", podworker.KillOptions{}), podworker.ErrStopped)
	})
}

func TestRun_SourceReturnsEarly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "source file has returned"},
		{errors.New("no such folder"), "source file has returned: no such folder"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, newNode(t), newStore(), t.TempDir())
			b.start()
			require.ErrorContains(t, b.Ready(), "waiting for file")
			b.sources[podspec.SourceFile].fail <- tt.err
			require.EqualError(t, <-b.ended, tt.want)
			require.ErrorContains(t, b.Run(t.Context()), "can run only once")
			b.cancel()
		})
	}
}

// callers call the loop from places where the call must not block.
func TestSync_FromAnyHook(t *testing.T) {
	t.Parallel()
	a := &allocator{name: "cpus"}
	var running atomic.Pointer[bed]
	var calls atomic.Int64
	sync := func(types.UID) {
		if b := running.Load(); b != nil && calls.Add(1) < 100 { // a sink that always calls the loop is always called again
			b.Sync("uid-web", "uid-nobody")
			b.SyncAll()
		}
	}
	a.called = sync
	inBubble(t, func(b *bed) {
		running.Store(b)
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.set()
		b.awaitGone("web")
		require.Equal(t, "admit web, release web", a.log())
		running.Store(nil)
	}, func(c *Config) {
		c.Allocators = append(c.Allocators, a)
		c.Sink = callingSink{sync}
		c.Observers.Pod = func(m Move) { sync(m.Pod.UID) }
	})
}
