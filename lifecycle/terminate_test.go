package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
)

func hooked(name string) corev1.Container {
	return corev1.Container{Name: name, Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

// podWithSidecars has the sidecar sc1, an init container, sc2, sc3, and then
// main and helper.
func podWithSidecars() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			sidecar(hooked("sc1")), {Name: "init"}, sidecar(corev1.Container{Name: "sc2"}), sidecar(corev1.Container{Name: "sc3"}),
		},
		Containers: []corev1.Container{hooked("main"), {Name: "helper"}},
	}}
}

func up(names ...string) (states []lifecycle.ContainerState) {
	for _, name := range names {
		states = append(states, lifecycle.ContainerState{Name: name, Running: true})
	}
	return states
}

func TestTerminationPlans(t *testing.T) {
	t.Parallel()
	down := func(names ...string) (states []lifecycle.ContainerState) {
		for _, name := range names {
			states = append(states, lifecycle.ContainerState{Name: name})
		}
		return states
	}
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		states []lifecycle.ContainerState
		left   time.Duration
		want   string
	}{
		{"nothing runs", podWithSidecars(), down("main", "sc1"), time.Minute, ""},
		{
			"sidecars in reverse order after the containers", podWithSidecars(), up("sc1", "sc2", "sc3", "helper", "main"), time.Minute,
			"stage 0: main (preStop), helper\nstage 1: sc3\nstage 2: sc2\nstage 3: sc1 (preStop)",
		},
		{
			"a sidecar that has ended holds nobody up", podWithSidecars(), append(up("sc1", "sc3", "main"), down("sc2", "helper")...), time.Minute,
			"stage 0: main (preStop)\nstage 1: sc3\nstage 2: sc1 (preStop)",
		},
		{
			"an init container keeps the sidecars that it needs", podWithSidecars(), up("init", "sc1"), time.Minute,
			"stage 0: init\nstage 1: sc1 (preStop)",
		},
		{
			"a container that is not in the spec stops at once", podWithSidecars(), up("debugger", "sc1", "main"), time.Minute,
			"stage 0: main (preStop), debugger\nstage 1: sc1 (preStop)",
		},
		{
			"sidecars alone", podWithSidecars(), up("sc2", "sc1"), time.Minute,
			"stage 0: sc2\nstage 1: sc1 (preStop)",
		},
		{
			"no time, no order and no hooks", podWithSidecars(), up("sc1", "sc2", "main"), 0,
			"stage 0: main, sc2, sc1",
		},
		{"a pod that only the runtime knows", nil, up("b", "a", "b"), time.Minute, "stage 0: b, a"},
		{
			"a hook that has run", podWithSidecars(),
			[]lifecycle.ContainerState{{Name: "main", Running: true, PreStopped: true}},
			time.Minute,
			"stage 0: main",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, lifecycle.PlanTermination(tt.pod, tt.states, tt.left).String())
		})
	}
	steps := lifecycle.PlanTermination(podWithSidecars(), up("sc1", "sc2", "main", "x"), time.Minute).Steps
	require.Equal(t, "sc1", steps[3].Container)
	require.Equal(t, []string{"main", "sc2"}, steps[3].After)
}

// Every running container is in the plan once, and no two containers wait for
// each other.
func FuzzPlanTermination(f *testing.F) {
	f.Add(uint8(0b111111), uint8(0b0110), true)
	f.Add(uint8(0b010101), uint8(0b1111), false)
	f.Fuzz(func(t *testing.T, running, sidecars uint8, hasTime bool) {
		pod, states := &corev1.Pod{}, []lifecycle.ContainerState{}
		for i := range 4 {
			c := corev1.Container{Name: fmt.Sprint("i", i)}
			if sidecars&(1<<i) != 0 {
				c = sidecar(c)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		pod.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "a"}}
		names := []string{"i0", "i1", "i2", "i3", "a", "b", "x", "x"}
		want := map[string]bool{}
		for i, name := range names {
			states = append(states, lifecycle.ContainerState{Name: name, Running: running&(1<<i) != 0})
			want[name] = want[name] || running&(1<<i) != 0
		}
		left := time.Duration(0)
		if hasTime {
			left = time.Second
		}
		stage := map[string]int{}
		for _, s := range lifecycle.PlanTermination(pod, states, left).Steps {
			require.True(t, want[s.Container], s.Container)
			want[s.Container] = false
			stage[s.Container] = s.Stage
			require.True(t, hasTime || s.After == nil)
			for _, before := range s.After {
				at, ok := stage[before]
				require.True(t, ok && at < s.Stage, "%s after %s", s.Container, before)
			}
		}
		for name, missing := range want {
			require.False(t, missing, name)
		}
	})
}

// A node runs containers that need some time to exit after a stop request. All times are
// seconds since its start.
type node struct {
	start time.Time
	takes map[string]time.Duration

	mu    sync.Mutex
	told  []string // stop requests: "name@when grace"
	ended map[string]float64
}

func newNode(takes map[string]time.Duration) *node {
	return &node{start: time.Now(), takes: takes, ended: map[string]float64{}}
}

func (n *node) at() float64 { return time.Since(n.start).Seconds() }

// stop behaves like a runtime: it kills the container after grace. If ctx is done, it returns
// and the container continues to run.
func (n *node) stop(ctx context.Context, name string, grace time.Duration) error {
	n.mu.Lock()
	n.told = append(n.told, fmt.Sprintf("%s@%v %v", name, n.at(), grace))
	n.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(grace, n.takes[name])):
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[name] = n.at()
	return nil
}

func (n *node) tolds() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.told)
	return n.told
}

func plan(names ...string) lifecycle.TerminationPlan {
	return lifecycle.PlanTermination(podWithSidecars(), up(names...), time.Minute)
}

// Upstream's TestTerminationOrderingSidecarStopAfterMain and ...InReverseOrder.
func TestTerminate_SidecarsStopInReverseOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"main": time.Second, "sc1": time.Second, "sc2": time.Second, "sc3": time.Second})
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main", "sc1", "sc2", "sc3"), Deadline: in(30 * time.Second), Stop: n.stop,
		}))
		require.Equal(t, []string{"main@0 30s", "sc1@3 27s", "sc2@2 28s", "sc3@1 29s"}, n.tolds())
	})
}

// Upstream's TestTerminationOrderingObeysGrace: no container waits past the
// deadline.
func TestTerminate_NoContainerWaitsPastTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const never = time.Hour
		n := newNode(map[string]time.Duration{"main": never, "helper": time.Second, "sc1": never, "sc2": never, "sc3": never})
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main", "helper", "sc1", "sc2", "sc3"), Deadline: in(5 * time.Second), Stop: n.stop,
		}))
		require.Equal(t, []string{"helper@0 5s", "main@0 5s", "sc1@5 2s", "sc2@5 2s", "sc3@5 2s"}, n.tolds())
		require.InDelta(t, 7, n.at(), 0, "the termination must end 2 s after the grace period")
	})
}

// An error must not use up the grace period of waiting containers.
func TestTerminate_FailedStopReleasesWaitingContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"sc3": time.Second})
		broken := errors.New("the runtime says no")
		err := lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main", "sc3"), Deadline: in(30 * time.Second),
			Stop: func(ctx context.Context, name string, grace time.Duration) error {
				if name == "main" {
					return broken
				}
				return n.stop(ctx, name, grace)
			},
		})
		require.ErrorIs(t, err, broken)
		require.EqualError(t, err, "stop container main: the runtime says no")
		require.Equal(t, []string{"sc3@0 30s"}, n.tolds())
	})
}

// kubernetes#127339: a second deletion with a shorter grace period, while a
// container is being stopped and another waits for it.
func TestTerminate_ShorterGraceDuringAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"main": time.Hour, "sc3": time.Hour})
		d := in(10 * time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(10 * time.Second)
			d.Shorten(time.Now().Add(5 * time.Second))
			time.Sleep(time.Second)
			d.Shorten(time.Now().Add(3500 * time.Millisecond)) // the runtime's timeout is the same as for 4 s
		})
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{Plan: plan("main", "sc3"), Deadline: d, Stop: n.stop}))
		wg.Wait()
		require.Equal(t, []string{"main@0 10m0s", "main@10 5s", "sc3@14.5 2s"}, n.tolds())
		require.InDelta(t, 16.5, n.at(), 0)
	})
}

// Rounding to whole seconds must not add up to more than 2 s past the deadline.
func TestTerminate_ShorteningByLessThanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"main": time.Hour})
		d := in(2900 * time.Millisecond)
		time.AfterFunc(400*time.Millisecond, func() { d.Shorten(time.Now().Add(500 * time.Millisecond)) })
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{Plan: plan("main"), Deadline: d, Stop: n.stop}))
		require.Equal(t, []string{"main@0 3s", "main@0.4 2s"}, n.tolds())
		require.LessOrEqual(t, n.at(), 2.9)
	})
}

func TestTerminate_CallThatIgnoresCancellationDelaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), in(10*time.Minute)
		var calls atomic.Int32
		gone := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Second)
			d.Shorten(time.Now())
		})
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main"), Deadline: d,
			Stop: func(_ context.Context, _ string, grace time.Duration) error {
				if calls.Add(1) == 1 {
					<-gone // like a runtime, it returns when the container has exited
					return errors.New("too late to matter")
				}
				time.Sleep(grace)
				close(gone)
				return nil
			},
		}))
		wg.Wait()
		require.EqualValues(t, 2, calls.Load())
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

// A runtime may have stopped the container just when the grace period is
// shortened.
func TestTerminate_SupersededCallIsCancelledAndMayStillStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), in(10*time.Minute)
		time.AfterFunc(time.Second, func() { d.Shorten(time.Now().Add(5 * time.Second)) })
		var calls []time.Duration
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main"), Deadline: d,
			Stop: func(ctx context.Context, _ string, grace time.Duration) error {
				first := len(calls) == 0
				calls = append(calls, grace)
				<-ctx.Done()
				if !first {
					return ctx.Err()
				}
				time.Sleep(100 * time.Millisecond)
				return nil
			},
		}))
		require.Equal(t, []time.Duration{10 * time.Minute, 5 * time.Second}, calls)
		require.Equal(t, 1100*time.Millisecond, time.Since(start))
	})
}

// kubernetes#134338: the hook, the waiting and the stop share one deadline.
func TestTerminate_HookAndStopShareOneDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"main": time.Hour, "sc1": time.Hour})
		var hooks []string
		var mu sync.Mutex
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main", "sc1"), Deadline: in(10 * time.Second), Stop: n.stop,
			PreStop: func(ctx context.Context, name string, hook *corev1.LifecycleHandler) {
				began := n.at()
				select {
				case <-ctx.Done():
				case <-time.After(map[string]time.Duration{"main": 4 * time.Second, "sc1": time.Hour}[name]):
				}
				mu.Lock()
				defer mu.Unlock()
				hooks = append(hooks, fmt.Sprint(name, " from ", began, " to ", n.at(), " ", context.Cause(ctx), " ", hook.Sleep != nil))
			},
		}))
		require.Equal(t, []string{
			"main from 0 to 4 <nil> true",
			"sc1 from 0 to 10 the grace period is over true", // from the start, as in KEP-753
		}, hooks)
		require.Equal(t, []string{"main@4 6s", "sc1@10 2s"}, n.tolds())
		require.InDelta(t, 12, n.at(), 0)
	})
}

func TestTerminate_HookThatIgnoresCancellationDelaysNoStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, gone := newNode(nil), make(chan struct{})
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main"), Deadline: in(10 * time.Second),
			Stop: func(ctx context.Context, name string, grace time.Duration) error {
				defer close(gone) // the hook's command ends with the container
				return n.stop(ctx, name, grace)
			},
			PreStop: func(context.Context, string, *corev1.LifecycleHandler) { <-gone },
		}))
		require.Equal(t, []string{"main@10 2s"}, n.tolds())
	})
}

func TestHook_EndsWithItsContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, exited := newNode(nil), make(chan struct{})
		time.AfterFunc(3*time.Second, func() { close(exited) })
		require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan: plan("main"), Deadline: in(30 * time.Second), Stop: n.stop,
			Exited: func(string) <-chan struct{} { return exited },
			PreStop: func(ctx context.Context, _ string, _ *corev1.LifecycleHandler) {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrContainerExited)
			},
		}))
		require.Equal(t, []string{"main@3 27s"}, n.tolds())
	})
}

// Hooks and termination in the combination that podrunner uses: a hook that hangs and is
// cancelled at the deadline, and a hook whose container exits first.
func TestTerminate_WithAHookRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			exits  time.Duration
			want   error
			events []string
		}{
			{time.Hour, lifecycle.ErrDeadline, []string{"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed"}},
			{3 * time.Second, lifecycle.ErrContainerExited, nil},
		} {
			rec, n, exited := &events{}, newNode(nil), make(chan struct{})
			timer := time.AfterFunc(tt.exits, func() { close(exited) })
			r := hookRunner(t, lifecycle.HookConfig{Exec: execFunc(blocks), Events: rec})
			h := hook(lifecycle.PreStop, command("hang"))
			h.Deadline, h.Exited = in(10*time.Second), exited
			require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
				Plan: plan("main"), Deadline: h.Deadline, Stop: n.stop,
				Exited: func(string) <-chan struct{} { return exited },
				PreStop: func(ctx context.Context, _ string, _ *corev1.LifecycleHandler) {
					require.ErrorIs(t, r.Run(ctx, h).Err, tt.want)
				},
			}))
			require.Equal(t, tt.events, rec.all)
			timer.Stop()
		}
	})
}

func TestTerminate_CancelledReturnsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(map[string]time.Duration{"helper": time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := lifecycle.Terminate(ctx, lifecycle.Termination{
			Plan: plan("main", "helper", "sc3"), Deadline: in(time.Minute), Stop: n.stop,
			PreStop: func(ctx context.Context, _ string, _ *corev1.LifecycleHandler) { <-ctx.Done() },
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stop container sc3")
		require.Equal(t, []string{"helper@0 1m0s"}, n.tolds(), "main and sc3 must not be stopped after the cancellation")
		require.InDelta(t, 3, n.at(), 0)
	})
}

func TestTerminate_MissingFields(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{Deadline: in(0)}), lifecycle.ErrTermination)
	n := newNode(nil)
	require.ErrorIs(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{Stop: n.stop}), lifecycle.ErrTermination)
	require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{Stop: n.stop, Deadline: in(0)}), "terminating no containers must succeed")
	twice := lifecycle.TerminationPlan{Steps: []lifecycle.TerminationStep{{Container: "a"}, {Container: "a"}}}
	err := lifecycle.Terminate(t.Context(), lifecycle.Termination{Plan: twice, Stop: n.stop, Deadline: in(0)})
	require.ErrorIs(t, err, lifecycle.ErrTermination, "a plan with two steps for one container must be rejected")
	require.Empty(t, n.tolds())
}
