package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// execFunc is a function that implements ExecRunner.
type execFunc func(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error)

func (f execFunc) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
	return f(ctx, id, cmd, timeout)
}

func hookRunner(tb testing.TB, cfg lifecycle.HookConfig) *lifecycle.HookRunner {
	tb.Helper()
	r, err := lifecycle.NewHookRunner(cfg)
	require.NoError(tb, err)
	return r
}

// hook returns a hook with the given kind and handler and a deadline in 30 s.
func hook(kind lifecycle.HookKind, handler corev1.LifecycleHandler) lifecycle.Hook {
	return lifecycle.Hook{
		Kind: kind,
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "podFoo", Namespace: "nsFoo", UID: "uid"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "containerFoo"}}},
		},
		Container: &corev1.Container{
			Name:      "containerFoo",
			Lifecycle: &corev1.Lifecycle{PostStart: &handler, PreStop: &handler},
			Ports:     []corev1.ContainerPort{{Name: "quux", ContainerPort: 8080}},
		},
		ContainerID: "abc1234",
		PodIP:       "233.252.0.1",
		Deadline:    in(30 * time.Second),
	}
}

func command(cmd ...string) corev1.LifecycleHandler {
	return corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: cmd}}
}

// blocks runs until ctx is done.
func blocks(ctx context.Context, _ string, _ []string, _ time.Duration) ([]byte, []byte, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// Upstream's TestRunHandlerExec.
func TestRunHandlerExec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var started, ended []lifecycle.HookInfo
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{
			Events: rec,
			Exec: execFunc(func(_ context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
				require.Equal(t, "abc1234", id)
				require.Equal(t, []string{"ls", "-a"}, cmd)
				require.Equal(t, 31*time.Second, timeout)
				time.Sleep(2 * time.Second)
				return []byte("out "), []byte("err"), nil
			}),
			Observer: lifecycle.HookObserver{
				Started: func(i lifecycle.HookInfo) { started = append(started, i) },
				Ended:   func(i lifecycle.HookInfo) { ended = append(ended, i) },
			},
		})
		start := time.Now()
		h := hook(lifecycle.PostStart, command("ls", "-a"))
		require.Equal(t, lifecycle.HookResult{}, r.Run(t.Context(), h))
		require.Empty(t, rec.all)
		require.Equal(t, []lifecycle.HookInfo{{Hook: h}}, started)
		require.Equal(t, []lifecycle.HookInfo{{Hook: h, Elapsed: 2 * time.Second}}, ended)
		require.Equal(t, []lifecycle.HookOutput{{
			PodUID: "uid", Container: "containerFoo", Kind: lifecycle.PostStart,
			Start: start, Elapsed: 2 * time.Second, Output: "out err",
		}}, r.Outputs())
	})
}

// Upstream's TestRunHandlerExecFailure, and the pod's events.
func TestHook_FailedCommandEventOmitsItsOutput(t *testing.T) {
	t.Parallel()
	failed := errors.New("invalid command")
	for kind, event := range map[lifecycle.HookKind]string{
		lifecycle.PostStart: "podFoo spec.containers{containerFoo} Warning FailedPostStartHook PostStartHook failed",
		lifecycle.PreStop:   "podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed",
	} {
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{
			Events: rec,
			Exec: execFunc(func(context.Context, string, []string, time.Duration) ([]byte, []byte, error) {
				return []byte("secret: "), []byte("invalid command"), failed
			}),
		})
		result := r.Run(t.Context(), hook(kind, command("ls", "--a")))
		require.Equal(t, failed, result.Err)
		require.Equal(t, `Exec lifecycle hook ([ls --a]) for Container "containerFoo" in Pod "podFoo_nsFoo(uid)" failed`+
			` - error: invalid command, message: "secret: invalid command"`, result.Message)
		require.Equal(t, []string{event}, rec.all, "the output of a hook may contain a secret, and must not be in the event") // kubernetes#119541
	}
	result := hookRunner(t, lifecycle.HookConfig{}).Run(t.Context(), hook(lifecycle.PreStop, command("ls")))
	require.EqualError(t, result.Err, "exec hooks are not configured")
}

// Upstream's TestRunHandlerNil, and tcpSocket, which exists only in the API.
func TestHook_UnsupportedHandlers(t *testing.T) {
	t.Parallel()
	r := hookRunner(t, lifecycle.HookConfig{})
	tcp := corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}
	result := r.Run(t.Context(), hook(lifecycle.PostStart, tcp))
	require.EqualError(t, result.Err, "invalid handler: "+tcp.String())
	require.Equal(t, "Cannot run handler: invalid handler: "+tcp.String(), result.Message)
	require.ErrorContains(t, r.Run(t.Context(), hook(lifecycle.PostStart, corev1.LifecycleHandler{})).Err, "invalid handler: ")
}

func TestHook_MissingFields(t *testing.T) {
	t.Parallel()
	r := hookRunner(t, lifecycle.HookConfig{})
	for name, change := range map[string]func(*lifecycle.Hook){
		"pod":       func(h *lifecycle.Hook) { h.Pod = nil },
		"container": func(h *lifecycle.Hook) { h.Container = nil },
		"deadline":  func(h *lifecycle.Hook) { h.Deadline = nil }, // kubernetes#30042: each hook must have a deadline
		"kind":      func(h *lifecycle.Hook) { h.Kind = "" },
	} {
		h := hook(lifecycle.PreStop, command("true"))
		change(&h)
		require.Error(t, r.Run(t.Context(), h).Err, name)
	}
	none := hook(lifecycle.PreStop, command("true"))
	none.Container.Lifecycle.PreStop = nil
	require.NoError(t, r.Run(t.Context(), none).Err)
	none.Container.Lifecycle = nil
	require.NoError(t, r.Run(t.Context(), none).Err)
	require.Empty(t, r.Outputs())

	_, err := lifecycle.NewHookRunner(lifecycle.HookConfig{Outputs: -1, OutputBytes: -2})
	require.EqualError(t, err, "lifecycle: invalid hook config: field Outputs: -1 is negative\nfield OutputBytes: -2 is negative")
}

// Upstream's TestRunSleepHandler.
func TestRunSleepHandler(t *testing.T) {
	t.Parallel()
	sleep := func(n int64) corev1.LifecycleHandler {
		return corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: n}}
	}
	for _, tt := range []struct {
		name           string
		seconds, grace int64
		took           time.Duration
		cut            bool
	}{
		{"fits", 5, 30, 5 * time.Second, false},
		{"nothing at all", 0, 30, 0, false},
		{"longer than the grace period", 3, 2, 2 * time.Second, true}, // kubernetes#134338
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, cut := time.Now(), 0
				r := hookRunner(t, lifecycle.HookConfig{Observer: lifecycle.HookObserver{SleepTerminated: func(lifecycle.HookInfo) { cut++ }}})
				h := hook(lifecycle.PreStop, sleep(tt.seconds))
				h.Deadline = in(time.Duration(tt.grace) * time.Second)
				result := r.Run(t.Context(), h)
				require.Equal(t, tt.took, time.Since(start))
				if !tt.cut {
					require.Equal(t, lifecycle.HookResult{}, result)
					require.Zero(t, cut)
					return
				}
				require.Equal(t, 1, cut)
				require.ErrorIs(t, result.Err, lifecycle.ErrSleepTerminated)
				require.ErrorIs(t, result.Err, lifecycle.ErrDeadline)
				require.Equal(t, `Sleep lifecycle hook (3) for Container "containerFoo" in Pod "podFoo_nsFoo(uid)" failed`+
					` - error: container terminated before sleep hook finished`, result.Message)
			})
		})
	}
}

// kubernetes#103300 and kubernetes#30042: hooks that hang, and a shorter grace period during
// a hook (kubernetes#127339).
func TestHook_HangingHookEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{Exec: execFunc(blocks), Events: rec})
		start := time.Now()
		result := r.Run(t.Context(), hook(lifecycle.PostStart, command("hang")))
		require.ErrorIs(t, result.Err, lifecycle.ErrDeadline)
		require.Equal(t, 30*time.Second, time.Since(start))

		h := hook(lifecycle.PreStop, command("hang"))
		time.AfterFunc(time.Second, func() { h.Deadline.Shorten(time.Now().Add(time.Second)) })
		start = time.Now()
		require.ErrorIs(t, r.Run(t.Context(), h).Err, lifecycle.ErrDeadline)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, []string{
			"podFoo spec.containers{containerFoo} Warning FailedPostStartHook PostStartHook failed",
			"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed", // kubernetes#31902
		}, rec.all)

		start = time.Now()
		require.ErrorIs(t, r.Run(t.Context(), h).Err, lifecycle.ErrDeadline, "the deadline passed before the hook started")
		require.Zero(t, time.Since(start))
	})
}

func TestHook_CancelledWhenItsContainerExits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{Exec: execFunc(blocks), Events: rec})
		for _, kind := range []lifecycle.HookKind{lifecycle.PreStop, lifecycle.PostStart} {
			start, exited := time.Now(), make(chan struct{})
			time.AfterFunc(3*time.Second, func() { close(exited) })
			h := hook(kind, command("hang"))
			h.Exited = exited
			require.ErrorIs(t, r.Run(t.Context(), h).Err, lifecycle.ErrContainerExited)
			require.Equal(t, 3*time.Second, time.Since(start))
		}
		require.Equal(t, []string{"podFoo spec.containers{containerFoo} Warning FailedPostStartHook PostStartHook failed"}, rec.all,
			"the exit of the container must not fail its preStop hook")
	})
}

// A hook is not started if its container has exited or its deadline has passed.
func TestHook_NotStartedAfterTheDeadline(t *testing.T) {
	t.Parallel()
	ran, requests := 0, &doer{resp: ok()}
	r := hookRunner(t, lifecycle.HookConfig{
		Exec: execFunc(func(context.Context, string, []string, time.Duration) ([]byte, []byte, error) {
			ran++
			return nil, nil, nil
		}),
		HTTP: requests,
	})
	exited := make(chan struct{})
	close(exited)
	for _, handler := range []corev1.LifecycleHandler{
		command("x"),
		{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Host: "localhost"}},
		{Sleep: &corev1.SleepAction{}},
	} {
		for range 20 {
			h := hook(lifecycle.PreStop, handler)
			h.Exited = exited
			require.ErrorIs(t, r.Run(t.Context(), h).Err, lifecycle.ErrContainerExited)
			h = hook(lifecycle.PreStop, handler)
			h.Deadline = in(0)
			require.ErrorIs(t, r.Run(t.Context(), h).Err, lifecycle.ErrDeadline)
		}
	}
	require.Zero(t, ran)
	require.Nil(t, requests.req)
}

func TestHook_CancelledByItsCallerHasNotFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{Exec: execFunc(blocks), Events: rec})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Run(ctx, hook(lifecycle.PreStop, command("hang"))).Err, context.DeadlineExceeded)
		require.Empty(t, rec.all)
	})
}

// TestHook_DeadlineOfItsCaller checks that a hook has failed if the caller's context ends
// with the deadline of the pod.
func TestHook_DeadlineOfItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &events{}
		r := hookRunner(t, lifecycle.HookConfig{Exec: execFunc(blocks), Events: rec})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, lifecycle.ErrDeadline)
		defer cancel()
		result := r.Run(ctx, hook(lifecycle.PreStop, command("hang")))
		require.EqualError(t, result.Err, lifecycle.ErrDeadline.Error()+": "+context.DeadlineExceeded.Error())
		require.Len(t, rec.all, 1)
	})
}

func TestHook_FailureIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := hookRunner(t, lifecycle.HookConfig{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Exec: execFunc(func(context.Context, string, []string, time.Duration) ([]byte, []byte, error) {
			return nil, nil, errors.New("exit status 1")
		}),
	})
	h := hook(lifecycle.PreStop, command("x"))
	result := r.Run(t.Context(), h)
	require.EqualError(t, r.Outputs()[0].Err, "exit status 1")
	require.Equal(t, result.Err, r.Outputs()[0].Err)
	require.Contains(t, log.String(), fmt.Sprintf(`msg="lifecycle hook of a container failed" hook=preStop pod=%s/%s podUID=%s container=%s err="exit status 1"`+"\n",
		h.Pod.Namespace, h.Pod.Name, h.Pod.UID, h.Container.Name))
}

func TestOutputs_BoundedAndRedacted(t *testing.T) {
	t.Parallel()
	says := ""
	r := hookRunner(t, lifecycle.HookConfig{
		Outputs: 3, OutputBytes: 10,
		Exec: execFunc(func(context.Context, string, []string, time.Duration) ([]byte, []byte, error) {
			return []byte(says), nil, errors.New("exit status 1")
		}),
		Redact: func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("hunter2"), []byte("***")) },
	})
	kept := func() (all []string) {
		for _, o := range r.Outputs() {
			all = append(all, o.Output)
		}
		return all
	}
	for i, want := range [][]string{{"one"}, {"one", ""}, {"one", "", "pass: ***"}, {"", "pass: ***", "6789abcdef"}, {"pass: ***", "6789abcdef", "xxxxxxx***"}} {
		says = []string{"one", "", "pass: hunter2", "0123456789abcdef", strings.Repeat("x", 1<<20) + "hunter2"}[i]
		result := r.Run(t.Context(), hook(lifecycle.PreStop, command("x")))
		require.NotContains(t, result.Message, "hunter2")
		require.Less(t, len(result.Message), 200)
		require.Equal(t, want, kept())
	}
	got := r.Outputs()
	got[0].Output = "changed"
	require.Equal(t, "pass: ***", r.Outputs()[0].Output)
}
