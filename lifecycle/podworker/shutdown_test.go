package podworker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

var _ podworker.Killer = (*podworker.Workers)(nil)

// twoStages returns a stage of 20 s with an ordinary pod, and a stage of 10 s
// with a critical pod.
func twoStages() []podworker.Stage {
	c := podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second}
	return podworker.PlanShutdown([]*corev1.Pod{
		newPod("critical", priority(podworker.CriticalPriority)), newPod("a"),
	}, c.GracePeriods(), 0)
}

// events records the node's events.
type events []string

func (e *events) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	*e = append(*e, fmt.Sprintf("%T %s %s ", object, eventtype, reason)+fmt.Sprintf(messageFmt, args...))
}

func TestShutdown_CriticalPodsLast(t *testing.T) {
	inBubble(t, func(b *bed) {
		for _, s := range twoStages() {
			b.update(podworker.Create, s.Pods[0].Pod)
		}
		b.sync.log()
		b.sync.set("terminating", func(context.Context, podworker.SyncRequest) (bool, error) {
			time.Sleep(3 * time.Second)
			return false, nil
		})
		var recorded events
		var log []string
		began := time.Now()
		err := podworker.Shutdown(b.t.Context(), b, twoStages(), podworker.ShutdownOptions{
			Events: &recorded,
			Node:   &corev1.Node{},
			AwaitVolumes: func(_ context.Context, pods []*corev1.Pod) error {
				time.Sleep(time.Second)
				log = append(log, "unmounted "+pods[0].Name)
				return nil
			},
			Flush: func(context.Context) error { log = append(log, "flush"); return nil },
			StageEnd: func(s podworker.Stage, took time.Duration, err error) {
				log = append(log, fmt.Sprintln(s.Priority, took, err))
			},
		})
		require.NoError(t, err)
		require.Equal(t, 8*time.Second, time.Since(began), "a stage must end when its pods have terminated")
		require.Equal(t, []string{"unmounted a", "0 4s <nil>\n", "flush", "unmounted critical", "2000000000 4s <nil>\n", "flush"}, log)
		require.Equal(t, events{"*v1.Node Normal Shutdown Shutdown manager detected shutdown event"}, recorded)
		require.Equal(t, []string{"terminating a", "terminated a", "terminating critical", "terminated critical"}, b.sync.log())
		require.Equal(t, 20*time.Second, b.sync.turns[2].Grace)
		require.Equal(t, 10*time.Second, b.sync.last().Grace)
	})
}

func TestShutdown_SlowStageDoesNotDelayTheNext(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.set("terminating", func(ctx context.Context, req podworker.SyncRequest) (bool, error) {
			if req.Pod.Name == "a" {
				<-ctx.Done()
			}
			return false, ctx.Err()
		})
		began := time.Now()
		err := podworker.Shutdown(b.t.Context(), b, twoStages(), podworker.ShutdownOptions{})
		require.EqualError(t, err, "shut down pods of priority 0 and above: kill pod ns/a: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*time.Second, time.Since(began))
		require.True(t, b.IsPodTerminationRequested("a"), "the termination must continue")
		require.True(t, b.IsPodKnownTerminated("critical"))
	})
}

// The pods of a stage without time are also killed.
func TestShutdown_StageWithoutTimeStillKillsItsPods(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("terminating")
		stages := podworker.PlanShutdown([]*corev1.Pod{newPod("a")}, []podworker.ShutdownGracePeriodByPodPriority{{}}, 0)
		require.ErrorIs(t, podworker.Shutdown(b.t.Context(), b, stages, podworker.ShutdownOptions{}), context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, []string{"terminating a"}, b.sync.log())
		require.Equal(t, time.Second, b.sync.last().Grace)
	})
}

func TestShutdown_MountedVolumesDelayOnlyTheirStage(t *testing.T) {
	inBubble(t, func(b *bed) {
		began, waited := time.Now(), 0
		err := podworker.Shutdown(b.t.Context(), b, twoStages(), podworker.ShutdownOptions{
			AwaitVolumes: func(ctx context.Context, _ []*corev1.Pod) error {
				waited++
				<-ctx.Done()
				return fmt.Errorf("busy: %w", context.Cause(ctx))
			},
		})
		require.EqualError(t, err, "shut down pods of priority 0 and above: busy: context deadline exceeded\n"+
			"shut down pods of priority 2000000000 and above: busy: context deadline exceeded")
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, 2, waited)
	})
}

// The volumes of other pods must be unmounted even if a pod could not be killed.
func TestShutdown_WaitsForVolumesOfEndedPods(t *testing.T) {
	inBubble(t, func(b *bed) {
		stages := podworker.PlanShutdown([]*corev1.Pod{newPod(""), newPod("a")},
			[]podworker.ShutdownGracePeriodByPodPriority{{GracePeriod: 10 * time.Second}}, 0)
		var awaited []*corev1.Pod
		err := podworker.Shutdown(b.t.Context(), b, stages, podworker.ShutdownOptions{
			AwaitVolumes: func(_ context.Context, pods []*corev1.Pod) error {
				awaited = append(awaited, pods...)
				return errors.New("busy")
			},
		})
		require.EqualError(t, err, "shut down pods of priority 0 and above: podworker: KillPod needs a pod with a UID\nbusy")
		require.Len(t, awaited, 1)
		require.Equal(t, types.UID("a"), awaited[0].UID)
	})
}

func TestShutdown_FlushThatHangsTimesOut(t *testing.T) {
	inBubble(t, func(b *bed) {
		began := time.Now()
		err := podworker.Shutdown(b.t.Context(), b, twoStages(), podworker.ShutdownOptions{
			Flush: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		})
		require.EqualError(t, err, "flush statuses before the shutdown: context deadline exceeded\nflush statuses before the shutdown: context deadline exceeded")
		require.Equal(t, 4*time.Second, time.Since(began))
	})
}

func TestShutdown_NilPodsAndEmptyStages(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.Error(t, podworker.Shutdown(b.t.Context(), nil, twoStages(), podworker.ShutdownOptions{}))
		holes := []podworker.Stage{{}, {Period: time.Second, Pods: []podworker.StagePod{{}, {Pod: newPod("a")}}}}
		require.NoError(t, podworker.Shutdown(b.t.Context(), b, holes, podworker.ShutdownOptions{}))
		require.Equal(t, []string{"terminating a"}, b.sync.log()[:1])
	})
}

// The kubelet notices the cancellation only after it has killed all pods.
func TestShutdown_CancelledStops(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("terminating")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		done := make(chan error, 1)
		go func() { done <- podworker.Shutdown(ctx, b, twoStages(), podworker.ShutdownOptions{}) }()
		time.Sleep(time.Second)
		cancel(podworker.ErrShutdownCancelled)
		err := <-done
		require.ErrorIs(t, err, podworker.ErrShutdownCancelled)
		require.False(t, b.IsPodTerminationRequested("critical"))
	})
}

func TestShutdown_StatusOfAPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a", func(p *corev1.Pod) { p.Generation = 3 })
		stages := podworker.PlanShutdown([]*corev1.Pod{pod}, []podworker.ShutdownGracePeriodByPodPriority{{GracePeriod: time.Second}}, 0)
		require.NoError(t, podworker.Shutdown(b.t.Context(), b, stages, podworker.ShutdownOptions{}))
		synctest.Wait()
		f, earlier, other := b.sync.last().StatusFn, metav1.Unix(1, 0), corev1.PodCondition{Type: corev1.PodReady}
		why := corev1.PodCondition{
			Type: "DisruptionTarget", Status: "True", Reason: "TerminationByKubelet", ObservedGeneration: 3,
			Message: "Pod was terminated in response to imminent node shutdown.", LastTransitionTime: metav1.NewTime(time.Now()),
		}

		s := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{other}}
		f(&s)
		require.Equal(t, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Terminated", Message: why.Message, Conditions: []corev1.PodCondition{other, why},
		}, s)

		given := []corev1.PodCondition{{Type: "DisruptionTarget", Status: "True", LastTransitionTime: earlier}, other}
		s = corev1.PodStatus{Phase: corev1.PodSucceeded, Conditions: given}
		f(&s)
		why.LastTransitionTime = earlier
		require.Equal(t, corev1.PodSucceeded, s.Phase)
		require.Equal(t, []corev1.PodCondition{other, why}, s.Conditions)
		require.Empty(t, given[0].Reason, "the given pods must not be modified")
	})
}

// Users search for these texts.
func TestShutdown_TextsMatchTheKubelet(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Terminated", podworker.ReasonTerminated)
	require.Equal(t, "Pod was terminated in response to imminent node shutdown.", podworker.MessageTerminated)
	require.Equal(t, "NodeShutdown", podworker.ReasonNodeShutdown)
	require.Equal(t, "Pod was rejected as the node is shutting down.", podworker.MessageNodeShutdown)
	require.Equal(t, "Shutdown", podworker.EventShutdown)
	require.Equal(t, "Shutdown manager detected shutdown event", podworker.MessageShutdown)
	require.Equal(t, "Shutdown manager detected shutdown cancellation", podworker.MessageShutdownCancelled)
}

// logind is an Inhibitor that the test controls.
type logind struct {
	shutdown, cancel chan error
	taken            int
	released         int
	err              error
	lockless         bool
	impatient        bool          // ignores the lock
	allowed          time.Duration // arguments that the shutdown received
	events           events
}

func (l *logind) Inhibit(context.Context, time.Duration) (time.Duration, func(), error) {
	if l.err != nil {
		return 0, nil, l.err
	}
	l.taken++
	if l.lockless {
		return 5 * time.Second, nil, nil
	}
	if l.impatient {
		return 0, func() { l.released++ }, nil
	}
	return 5 * time.Second, func() { l.released++ }, nil
}

func (l *logind) AwaitShutdown(ctx context.Context) error { return await(ctx, l.shutdown) }
func (l *logind) AwaitCancel(ctx context.Context) error   { return await(ctx, l.cancel) }

func await(ctx context.Context, c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestHoldShutdown(t *testing.T) {
	hold := func(t *testing.T, in *logind, f func(stop func()), shutDown func(ctx context.Context)) error {
		t.Helper()
		var err error
		synctest.Test(t, func(t *testing.T) {
			in.shutdown, in.cancel = make(chan error), make(chan error)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() {
				done <- podworker.HoldShutdown(ctx, in, 30*time.Second, podworker.ShutdownOptions{Events: &in.events, Node: &corev1.Node{}}, func(ctx context.Context, allowed time.Duration) {
					in.allowed = allowed
					shutDown(ctx)
				})
			}()
			synctest.Wait()
			f(stop)
			err = <-done
		})
		require.Contains(t, []time.Duration{0, 5 * time.Second}, in.allowed)
		return err
	}
	broken := errors.New("bus is gone")
	nothing := func(context.Context) {}

	t.Run("nothing happens", func(t *testing.T) {
		in := &logind{}
		require.NoError(t, hold(t, in, func(stop func()) { stop() }, nothing))
		require.Equal(t, 1, in.released)
	})
	t.Run("a complete shutdown and a cancelled shutdown", func(t *testing.T) {
		in, n := &logind{}, 0
		require.NoError(t, hold(t, in, func(stop func()) {
			in.shutdown <- nil
			synctest.Wait()
			require.Equal(t, 1, in.released, "the lock must be released after the termination of the pods")
			in.cancel <- nil
			in.shutdown <- nil // the lock is held again
			in.cancel <- nil
			synctest.Wait()
			require.Equal(t, 3, in.taken)
			stop()
		}, func(ctx context.Context) {
			if n++; n == 2 {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), podworker.ErrShutdownCancelled)
			}
		}))
		require.Equal(t, 3, in.released)
		cancelled := "*v1.Node Normal Shutdown Shutdown manager detected shutdown cancellation"
		require.Equal(t, events{cancelled, cancelled}, in.events)
	})
	t.Run("a machine that does not wait", func(t *testing.T) {
		in := &logind{impatient: true, shutdown: make(chan error, 1)}
		err := podworker.HoldShutdown(t.Context(), in, 30*time.Second, podworker.ShutdownOptions{}, nil)
		require.EqualError(t, err, "inhibit the shutdown of the machine: the machine allows no delay of its shutdown, but 30s are needed")
		require.Equal(t, 1, in.released)
		in.shutdown <- broken
		err = podworker.HoldShutdown(t.Context(), in, 0, podworker.ShutdownOptions{}, nil)
		require.ErrorIs(t, err, broken, "the error must be returned at once")
	})
	t.Run("no lock", func(t *testing.T) {
		require.ErrorIs(t, hold(t, &logind{err: broken}, func(func()) {}, nothing), broken)
	})
	t.Run("a lock that needs no release", func(t *testing.T) {
		require.NoError(t, hold(t, &logind{lockless: true}, func(stop func()) { stop() }, nothing))
	})
	t.Run("no signal", func(t *testing.T) {
		in := &logind{}
		require.ErrorIs(t, hold(t, in, func(func()) { in.shutdown <- broken }, nothing), broken)
		require.Equal(t, 1, in.released)
	})
	t.Run("the signals fail during the shutdown", func(t *testing.T) {
		in := &logind{}
		require.ErrorIs(t, hold(t, in, func(func()) { in.shutdown <- nil; in.cancel <- broken }, func(ctx context.Context) {
			synctest.Wait()
			require.NoError(t, ctx.Err(), "the termination of the pods must continue")
		}), broken)
	})
}
