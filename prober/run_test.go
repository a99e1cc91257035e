package prober_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

// loop is a manager that runs in a bubble.
type loop struct {
	*prober.Manager
	*node
	began time.Time
	stop  context.CancelFunc
}

// inBubble runs f while a manager is running, with a pod of one container, "app", which has
// just started.
func inBubble(t *testing.T, c corev1.Container, f func(t *testing.T, l *loop), change ...func(*prober.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode()
		l := &loop{node: n, Manager: manager(t, n, clock.RealClock{}, change...), began: time.Now()}
		n.before = func() { // f sets the answer of the first command before its first wait
			if l.began.Equal(time.Now()) {
				time.Sleep(time.Nanosecond)
			}
		}
		l.runsAt(c.Name, "a", l.began)
		ctx, cancel := context.WithCancel(t.Context())
		l.stop = cancel
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		l.AddPod(podOf(c))
		l.Refresh("1234")
		f(t, l)
		cancel()
		require.NoError(t, <-done)
	})
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A failure is detected within threshold periods and one timeout, whenever in a period the
// container stops responding.
func TestRun_FailureIsDetectedInTime(t *testing.T) {
	t.Parallel()
	for _, phase := range []time.Duration{0, time.Millisecond, 3 * time.Second, 9999 * time.Millisecond, 17 * time.Second} {
		for _, hangs := range []bool{true, false} {
			t.Run(fmt.Sprintf("phase=%s/hangs=%v", phase, hangs), func(t *testing.T) {
				t.Parallel()
				inBubble(t, withProbes("app", prober.Liveness), func(t *testing.T, l *loop) {
					t.Helper()
					changes := l.Results(t.Context())
					wait(40*time.Second + phase)
					l.answers(func(ctx context.Context, r prober.ExecRequest) (int32, error) {
						if !hangs {
							return 1, nil
						}
						<-ctx.Done()
						return 0, ctx.Err()
					})
					bad := time.Now()
					c := <-changes
					require.Equal(t, prober.Failure, c.Result)
					took := time.Since(bad)
					require.LessOrEqual(t, took, 3*10*time.Second+time.Second)
					require.Greater(t, took, 2*10*time.Second)
				})
			})
		}
	}
}

// kubernetes#96614: the kubelet rounds the delay up to a tick, so that the first run is up to
// a period late.
func TestRun_FirstRunIsExactlyAfterTheInitialDelay(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.InitialDelaySeconds, c.LivenessProbe.PeriodSeconds = 20, 60
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		wait(190 * time.Second)
		starts := l.starts(prober.Liveness, l.began)
		require.Equal(t, 20*time.Second, starts[0])
		// The second run is up to a second early, so that probes of containers that started
		// together do not run together. All later runs are one period apart.
		require.InDelta(t, 80-0.5, starts[1].Seconds(), 0.5)
		require.Equal(t, time.Minute, starts[2]-starts[1])
	})
}

func TestRun_SpreadsProbesThatStartTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Liveness), func(t *testing.T, l *loop) {
		t.Helper()
		for i := range 50 {
			spec := podOf(withProbes("app", prober.Liveness))
			spec.UID = types.UID(fmt.Sprint(i))
			l.AddPod(spec)
		}
		wait(25 * time.Second)
		phases := map[time.Duration]bool{}
		for _, at := range l.starts(prober.Liveness, l.began) {
			phases[at] = true
		}
		require.Greater(t, len(phases), 50)
	})
}

// kubernetes#102064: containers that exist when an agent starts must not all be probed at
// once.
func TestRun_SpreadsProbesOfOlderContainers(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.PeriodSeconds = 3600
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		l.runsAt("app", "a", l.began.Add(-time.Hour))
		for i := range 200 {
			spec := podOf(c)
			spec.UID = types.UID(fmt.Sprint(i))
			l.AddPod(spec)
		}
		early := 0
		wait(10 * time.Second)
		starts := l.starts(prober.Liveness, l.began)
		require.GreaterOrEqual(t, len(starts), 200)
		for _, at := range starts {
			if at < time.Second {
				early++
			}
		}
		require.Less(t, early, 60)
	})
}

func TestOptions_SubSecondStartAndEdgePeriods(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Readiness)
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		l.exits(1)
		wait(950 * time.Millisecond) // every 100 ms until it is ready
		require.InDelta(t, 10, len(l.starts(prober.Readiness, l.began)), 1)
		l.exits(0)
		wait(time.Second)
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "a"))
		n := len(l.starts(prober.Readiness, l.began))
		wait(9750 * time.Millisecond) // every 500 ms
		require.InDelta(t, n+19, len(l.starts(prober.Readiness, l.began)), 1)
		l.exits(1)
		wait(530*time.Millisecond + 2*50*time.Millisecond) // every 50 ms until the threshold is reached
		require.Equal(t, prober.Failure, l.Result(key("app", prober.Readiness), "a"))
	}, func(cfg *prober.Config) {
		cfg.Options = func(*corev1.Pod, string, prober.Kind) prober.Options {
			return prober.Options{
				Period: 500 * time.Millisecond, Timeout: 20 * time.Millisecond, InitialDelay: -1,
				StartPeriod: 100 * time.Millisecond, EdgePeriod: 50 * time.Millisecond,
			}
		}
	})
}

func TestRun_SlowProbesDoNotAccumulate(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Readiness)
	c.ReadinessProbe.PeriodSeconds, c.ReadinessProbe.TimeoutSeconds = 1, 10
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		l.answers(func(context.Context, prober.ExecRequest) (int32, error) {
			time.Sleep(3500 * time.Millisecond)
			return 0, nil
		})
		wait(14100 * time.Millisecond)
		require.Equal(t, []time.Duration{0, 3500 * time.Millisecond, 7 * time.Second, 10500 * time.Millisecond},
			l.starts(prober.Readiness, l.began))
	})
}

func TestRun_StartupSuccessTriggersTheOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Startup, prober.Readiness), func(t *testing.T, l *loop) {
		t.Helper()
		l.exits(1)
		wait(15 * time.Second)
		require.Empty(t, l.starts(prober.Readiness, l.began))
		l.exits(0)
		wait(10 * time.Second)
		require.Equal(t, l.starts(prober.Startup, l.began)[2], l.starts(prober.Readiness, l.began)[0])
	})
}

// The Manager notices a restart at once when Refresh is called, and otherwise within
// PollPeriod.
func TestRun_NewContainerIsProbedAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Readiness), func(t *testing.T, l *loop) {
		t.Helper()
		wait(time.Second)
		l.ends("app")
		l.Refresh("1234")
		require.Equal(t, prober.Failure, l.Result(key("app", prober.Readiness), "a"))
		wait(2500 * time.Millisecond)
		l.runsAt("app", "b", time.Now())
		at := time.Now()
		l.Refresh("1234")
		wait(time.Millisecond)
		require.Equal(t, at.Sub(l.began), l.starts(prober.Readiness, l.began)[1])
		l.ends("app")
		wait(11 * time.Second)
		l.runsAt("app", "c", time.Now())
		wait(1001 * time.Millisecond)
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "c"))
	})
}

// kubernetes#118815: the failure of a triggered run must not be counted.
func TestTrigger_RunsAreAdditional(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Readiness)
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		wait(25 * time.Second)
		l.exits(1)
		before := l.starts(prober.Readiness, l.began)
		for range 5 {
			l.Trigger(key("app", prober.Readiness))
			wait(time.Millisecond)
		}
		require.Len(t, l.starts(prober.Readiness, l.began), len(before)+5)
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "a"))
		wait(10 * time.Second)
		after := l.starts(prober.Readiness, l.began)
		require.Equal(t, before[2]+10*time.Second, after[len(after)-1]) // the schedule is unchanged
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "a"))
	})
}

func TestRun_StopsImmediately(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.TimeoutSeconds = 3600
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		wait(time.Second)
		l.RemovePod("1234")
		wait(0) // no goroutine of the probe is left, otherwise the bubble would not end
		require.ErrorIs(t, l.Run(t.Context()), prober.ErrRunning)
	})
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		wait(time.Second)
		at := time.Now()
		l.stop() // the bubble waits until Run has returned
		wait(0)
		require.Equal(t, at, time.Now())
	})
}

// kubernetes#110070: the result is decided at the timeout, a command never runs twice at the
// same time, and each period in which it is still running is a failure.
func TestExec_HangingCommand(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		started := 0
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			started++
			<-ctx.Done()
			return 0, ctx.Err()
		})
		wait(21100 * time.Millisecond)
		require.Equal(t, prober.Failure, l.Result(key("app", prober.Liveness), "a"))
		require.Equal(t, 1, started)
		require.Equal(t, 1, l.outlive)
		require.Equal(t, 1, l.kills)
		h := l.History(key("app", prober.Liveness))
		require.Equal(t, `command timed out: "check" timed out after 1s`, h[0].Output)
		require.Equal(t, time.Second, h[0].Duration)
		require.Equal(t, `command timed out: "check" timed out after 1s, and the command is still running`, h[2].Output)
	})
}

// A command whose grace period is over is run again.
func TestExec_GraceOfACommandEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Readiness), func(t *testing.T, l *loop) {
		t.Helper()
		started := 0
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			started++
			<-ctx.Done()
			return 0, ctx.Err()
		})
		wait(35 * time.Second)
		require.Equal(t, 2, started)
	}, func(cfg *prober.Config) { cfg.ExecGrace = 20 * time.Second })
}

// If many commands hang, the other commands run after one timeout, and the time that they
// wait does not count towards their timeout.
func TestRun_MaxExec(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Liveness), func(t *testing.T, l *loop) {
		t.Helper()
		inFlight, most := 0, 0
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			l.do(func() { inFlight++; most = max(most, inFlight) })
			time.Sleep(900 * time.Millisecond)
			l.do(func() { inFlight-- })
			return 0, nil
		})
		for i := range 9 {
			spec := podOf(withProbes("app", prober.Liveness))
			spec.UID = types.UID(fmt.Sprint(i))
			l.AddPod(spec)
		}
		wait(8 * time.Second)
		require.Equal(t, 2, most)
		l.do(func() {
			require.GreaterOrEqual(t, len(l.runs), 10)
			for _, r := range l.runs {
				require.Equal(t, prober.Succeeded, r.Outcome)
			}
			require.Greater(t, l.runs[9].Late, 3*time.Second)
		})
	}, func(cfg *prober.Config) { cfg.MaxExec = 2 })
}

// A watcher that does not read receives the newest result in the end, and does not delay
// other watchers.
func TestResults_Coalesce(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Readiness)
	c.ReadinessProbe.FailureThreshold = 1
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		wait(time.Second)
		slow, quick := l.Results(t.Context()), l.Results(t.Context())
		var seen []prober.Result
		go func() {
			for c := range quick {
				l.do(func() { seen = append(seen, c.Result) })
			}
		}()
		for i := range 6 {
			l.exits(int32(1 - i%2))
			wait(10 * time.Second)
		}
		l.exits(1)
		wait(10 * time.Second)
		l.do(func() { require.Len(t, seen, 7) })
		require.Equal(t, prober.Failure, (<-slow).Result) // the watcher's goroutine had already taken the first change
		last := <-slow
		require.Equal(t, prober.Change{Key: key("app", prober.Readiness), ContainerID: "a", Result: prober.Failure}, last)
		select {
		case c := <-slow:
			require.Fail(t, "unexpected result", "%v", c)
		default:
		}
	})
}

// An agent adds the pod again whenever a result has changed. If each AddPod published the result of
// a container that has ended, the agent would add the pod forever.
func TestAddPod_ResultOfAnEndedContainerIsPublishedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Readiness), func(t *testing.T, l *loop) {
		t.Helper()
		spec := podOf(withProbes("app", prober.Readiness))
		spec.Spec.RestartPolicy = corev1.RestartPolicyNever
		l.AddPod(spec)
		wait(time.Second)
		l.ends("app")
		wait(time.Minute)
		changes := l.Results(t.Context())
		for range 3 {
			l.AddPod(spec)
			wait(time.Minute)
		}
		select {
		case c := <-changes:
			require.Fail(t, "unexpected result", "%v", c)
		default:
		}
	})
}

func TestRun_EndedPodIsRemoved(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Readiness, prober.Liveness), func(t *testing.T, l *loop) {
		t.Helper()
		wait(time.Second)
		l.set("app", prober.Target{ID: "a", State: prober.Exited, Ended: true})
		wait(20 * time.Second)
		l.do(func() { require.Len(t, l.removed, 2) })
	})
}

// A command that does not end when its context is done delays the return of Run, so that a
// second Run is rejected.
func TestRun_RejectsASecondOneUntilTheFirstHasReturned(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Liveness), func(t *testing.T, l *loop) {
		t.Helper()
		end := make(chan struct{})
		l.answers(func(context.Context, prober.ExecRequest) (int32, error) {
			<-end
			return 0, nil
		})
		wait(10 * time.Second)
		l.stop()
		wait(0)
		again, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Run(again), prober.ErrRunning)
		close(end)
		wait(0)
		require.NoError(t, l.Run(again))
	})
}
