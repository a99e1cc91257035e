package podloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

func TestExplain_WaitingContainers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "crash:1", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3600)) })
		b.set(pod)
		var e Explanation
		b.eventually("the container is in CrashLoopBackOff", func() bool {
			e, _ = b.Explain(b.t.Context(), pod.UID)
			return strings.Contains(strings.Join(e.Why, "\n"), "container main waits: CrashLoopBackOff")
		})
		require.Equal(b.t, "container main is restarted", e.Next[0].What)
		require.True(b.t, e.Next[0].At.After(time.Now()))
		require.Equal(b.t, "it is stopped because its active deadline (3600 s) is over", e.Next[1].What)
		require.Contains(b.t, strings.Join(e.Why, "\n"), "container main last ended with exit code 3 (Error) at 2000-01-01T")
		require.NotEmpty(b.t, e.Plan)
		time.Sleep(time.Hour)
		p := b.await("web", Ended)
		require.Equal(b.t, "DeadlineExceeded", p.Spec.Status.Reason)
	})
}

func TestExplain_Pulls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		require.NoError(b.t, b.node.Fail("PullImage", fakecri.Fault{Err: grpcstatus.Error(codes.Unavailable, "no registry")}))
		b.set(newPod("web", "web:1"))
		b.eventually("the pull waits for its back-off", func() bool {
			e, err := b.Explain(b.t.Context(), "uid-web")
			require.NoError(b.t, err)
			return len(e.Next) > 0 && e.Next[0].What == "the image of container main is pulled again"
		})
		b.node.ClearFaults("PullImage")
		b.awaitRunning("web")
	})
}

func TestBackoffs_SurviveRestarts(t *testing.T) {
	t.Parallel()
	pod := newPod("web", "crash:1")
	inRestarts(t, func(b *bed) {
		b.set(pod)
		time.Sleep(5 * time.Minute)
		require.NotEmpty(b.t, b.restarts.Snapshot())
		text, err := b.store.Get(b.t.Context(), backoffKey)
		require.NoError(b.t, err)
		require.Contains(b.t, string(text), `{"version":1,"data":[{"key":`)
	}, func(b *bed) {
		require.NotEmpty(b.t, b.restarts.Snapshot())
	})
}

// fullStore is a store whose writes fail while full is set.
type fullStore struct {
	*state.MemoryStore
	full bool
}

func (s *fullStore) Put(ctx context.Context, key string, value []byte) error {
	if s.full {
		return errors.New("no space left on device")
	}
	return s.MemoryStore.Put(ctx, key, value)
}

func TestBackoffs_FailedSaveIsRetried(t *testing.T) {
	t.Parallel()
	store := &fullStore{MemoryStore: newStore(), full: true}
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	b := savedBackoff{Backoff: backoff, store: store, log: slog.New(slog.DiscardHandler)}
	b.Next("a", time.Now())
	require.Equal(t, saveRetry, b.save(t.Context()))
	_, err = store.Get(t.Context(), backoffKey)
	require.Error(t, err)
	store.full = false
	require.Equal(t, savePeriod, b.save(t.Context()))
	text, err := store.Get(t.Context(), backoffKey)
	require.NoError(t, err)
	require.Contains(t, string(text), `"key":"a"`)
}

// Two containers may be planned before the back-off of the first container is recorded.
func TestBackoffs_ComparedAgainAfterEachTrigger(t *testing.T) {
	t.Parallel()
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	b := savedBackoff{Backoff: backoff, store: newStore(), loop: loop.New(clock.RealClock{})}
	for range 3 {
		b.trigger()
		require.Equal(t, savePeriod, b.save(t.Context()))
	}
	b.Next("a", time.Now())
	require.Equal(t, savePeriod, b.save(t.Context()), "the change must be saved")
	require.Equal(t, idlePeriod, b.save(t.Context()))
}

// The creation of a container records the back-off, and may take longer than savePeriod.
func TestBackoffs_SavedAfterASlowStart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "crash:1"))
		b.eventually("the container backs off", func() bool {
			return len(b.restarts.Snapshot()) > 0 && b.restarts.Snapshot()[0].Delay >= 20*time.Second
		})
		require.NoError(b.t, b.node.Fail("CreateContainer", fakecri.Fault{Delay: 30 * time.Second}))
		before := b.restarts.Snapshot()[0].Delay
		b.eventually("the container has started again", func() bool { return b.restarts.Snapshot()[0].Delay > before })
		time.Sleep(time.Second)
		var saved []lifecycle.BackoffState
		require.NoError(b.t, state.Load(b.t.Context(), b.store, backoffKey, &saved))
		require.Equal(b.t, b.restarts.Snapshot()[0].Delay, saved[0].Delay)
	})
}

func TestBackoffs_DamagedValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{":                         "unexpected end",
		`{"version":2,"data":[]}`:   "version 2 is not supported, want 1",
		`{"version":1,"data":null}`: "the value has no data",
	} {
		store := newStore()
		require.NoError(t, store.Put(t.Context(), backoffKey, []byte(text)))
		b := newBed(t, newNode(t), store, t.TempDir())
		require.ErrorContains(t, b.restarts.load(t.Context()), want)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	exec := func(failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
			PeriodSeconds: 1, FailureThreshold: failures, SuccessThreshold: 1, TimeoutSeconds: 1,
		}
	}
	pod := newPod("web", "probed:1", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = exec(1), exec(3), exec(10)
	})
	ready := func(b *bed) bool {
		p, _ := b.Pod(pod.UID)
		return len(p.Spec.Status.ContainerStatuses) > 0 && p.Spec.Status.ContainerStatuses[0].Ready
	}
	inRestarts(t, func(b *bed) {
		b.set(pod)
		b.eventually("the pod is ready", func() bool { return ready(b) })
	}, func(b *bed) {
		b.set(pod)
		b.awaitRunning("web")
		require.True(b.t, ready(b), "the pod must stay ready after a restart of the agent")
		time.Sleep(time.Minute)
		require.True(b.t, ready(b))
		require.NoError(b.t, b.node.SetHealthy("default/web/main", false))
		b.eventually("the container is restarted because its liveness probe failed", func() bool {
			p, _ := b.Pod(pod.UID)
			return p.Spec.Status.ContainerStatuses[0].RestartCount == 1
		})
	})
}

// execs is a runtime whose ExecSync returns a fixed result.
type execs struct {
	stdout string
	err    error
}

func (e execs) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return []byte(e.stdout), nil, e.err
}

type exitError struct{ code int }

func (e exitError) Error() string   { return fmt.Sprint("exit ", e.code) }
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return e.code }

func TestCommands(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		execs
		code int32
		want error
	}{
		"success":   {execs{stdout: "ok"}, 0, nil},
		"exit code": {execs{stdout: "ok", err: exitError{7}}, 7, nil},
		"timeout":   {execs{err: grpcstatus.Error(codes.DeadlineExceeded, "late")}, 0, context.DeadlineExceeded},
		"no command": {execs{err: grpcstatus.Error(codes.Unknown,
			`exec failed: exec: \"x\": executable file not found in $PATH`)}, 0, prober.ErrCommandNotFound},
	} {
		var out bytes.Buffer
		code, err := commands{tt.execs}.Exec(t.Context(), prober.ExecRequest{Output: &out})
		require.Equal(t, tt.code, code, name)
		require.ErrorIs(t, err, tt.want, name)
		if tt.want == nil {
			require.Equal(t, tt.stdout, out.String(), name)
		}
	}
	_, err := commands{execs{err: errors.New("down")}}.Exec(t.Context(), prober.ExecRequest{})
	require.EqualError(t, err, "down")
}

// failingSink rejects all statuses until healed is set.
type failingSink struct{ healed atomic.Bool }

func (s *failingSink) Publish(context.Context, status.Change) error {
	if s.healed.Load() {
		return nil
	}
	return errors.New("the API server is down")
}
func (s *failingSink) Forget(types.UID) {}

// A failing sink is reported as a note, and statuses are still saved.
func TestSink_Fails(t *testing.T) {
	t.Parallel()
	sink := &failingSink{}
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.eventually("the check of statuses has a note", func() bool { return len(b.check("statuses").Notes) > 0 })
		require.Equal(b.t, "could not publish the statuses of 1 pods, will retry: the API server is down", b.check("statuses").Notes[0])
		keys, err := b.store.Keys(b.t.Context(), "statuses/")
		require.NoError(b.t, err)
		require.Len(b.t, keys, 1)
		sink.healed.Store(true)
		b.eventually("the check of statuses has no note", func() bool { return len(b.check("statuses").Notes) == 0 })
	}, func(c *Config) { c.Sink = sink })
}

// classes records the pods of UpdateQoS.
type classes struct{ calls chan int }

func (c classes) UpdateQoS(_ context.Context, pods []*corev1.Pod) error {
	select {
	case c.calls <- len(pods):
	default:
	}
	return errors.New("read-only file system")
}

func (c classes) Ensure(context.Context, *corev1.Pod, time.Duration) (string, error) {
	return "/pods", nil
}
func (c classes) Update(context.Context, *corev1.Pod, time.Duration) error { return nil }
func (c classes) Remove(context.Context, types.UID) error                  { return nil }

func TestCgroups_ClassesFollowThePods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := classes{make(chan int, 100)}
		b := newBed(t, newNode(t), newStore(), t.TempDir(), func(cfg *Config) { cfg.Cgroups = c })
		b.start()
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.eventually("UpdateQoS is called with one pod", func() bool { return <-c.calls == 1 })
		b.set()
		b.awaitGone("web")
		b.eventually("UpdateQoS is called with no pod", func() bool { return <-c.calls == 0 })
		b.stop()
	})
}

// A pod of an API server that has ended according to its status does not go through admission,
// and its deletion removes it.
func TestAPIPod_EndedPod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
		b.give("api", newPod("web", "web:1", failed))
		b.await("web", Ended)
		require.Equal(b.t, "admitted, ended", b.recorder.takeMoves("web"))
		require.Zero(b.t, b.sandboxes())
		b.give("api", newPod("web", "web:1", failed, func(p *corev1.Pod) { p.Status.Message = "x" }))
		b.give("api", newPod("web", "web:1", failed, deletedIn(0)))
		b.await("web", Removed)
	}, twoSources("file", "api"))
}

func TestRuntime_Down(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.node.Restart(time.Hour)
	}, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.await("web", Offered)
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		require.Error(b.t, b.StopPods(ctx, podworker.ShutdownConfig{}), "StopPods must fail, because it cannot know that no pod is running")
	})
}
