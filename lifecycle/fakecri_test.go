package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// onRuntime starts a container that runs the program p, and returns its
// runtime.
func onRuntime(t *testing.T, p fakecri.Program) (n *fakecri.Node, id string) {
	t.Helper()
	n, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: map[string]fakecri.Program{"demo/web:1": p}})
	require.NoError(t, err)
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}}
	sandbox, err := n.RunPodSandbox(t.Context(), pod, "")
	require.NoError(t, err)
	id, err = n.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "demo/web:1"},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, n.StartContainer(t.Context(), id))
	return n, id
}

// A complete termination on a runtime: hook, SIGTERM, SIGKILL, and a second deletion during
// the termination.
func TestTerminate_HooksAndSignalsOnARuntime(t *testing.T) {
	t.Parallel()
	hang := map[string]fakecri.Exec{"hang": {Runtime: time.Hour}, "quick": {Runtime: time.Second, Stdout: "drained"}, "bad": {ExitCode: 1, Stderr: "no"}}
	for _, tt := range []struct {
		name       string
		program    fakecri.Program
		command    string
		shortenAt  time.Duration // the time at which the remaining grace period is shortened to 3 s
		took       time.Duration
		exit       int32
		wantEvents []string
	}{
		{"a quick hook and a quick end", fakecri.Program{Exec: hang}, "quick", 0, time.Second, 143, nil},
		{"SIGTERM is ignored", fakecri.Program{Exec: hang, IgnoreTerm: true}, "quick", 0, 30 * time.Second, 137, nil},
		{
			"a hook that hangs",
			fakecri.Program{Exec: hang, TermDelay: time.Second},
			"hang", 0, 31 * time.Second, 143,
			[]string{"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			"both hang",
			fakecri.Program{Exec: hang, IgnoreTerm: true},
			"hang", 0, 32 * time.Second, 137,
			[]string{"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			"a hook that fails",
			fakecri.Program{Exec: hang},
			"bad", 0, 0, 143,
			[]string{"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			"grace is shortened while the hook hangs",
			fakecri.Program{Exec: hang, IgnoreTerm: true},
			"hang", 4 * time.Second, 9 * time.Second, 137,
			[]string{"podFoo spec.containers{containerFoo} Warning FailedPreStopHook PreStopHook failed"},
		},
		{"grace is shortened while SIGTERM is ignored", fakecri.Program{Exec: hang, IgnoreTerm: true}, "quick", 10 * time.Second, 13 * time.Second, 137, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, id := onRuntime(t, tt.program)
				rec := &events{}
				r := hookRunner(t, lifecycle.HookConfig{Exec: n, Events: rec})
				h := hook(lifecycle.PreStop, command(tt.command))
				h.ContainerID = id
				h.Pod.Spec.Containers = []corev1.Container{*h.Container}
				if tt.shortenAt > 0 {
					time.AfterFunc(tt.shortenAt, func() { h.Deadline.Shorten(time.Now().Add(3 * time.Second)) })
				}
				start := time.Now()
				require.NoError(t, lifecycle.Terminate(t.Context(), lifecycle.Termination{
					Plan:     lifecycle.PlanTermination(h.Pod, up(h.Container.Name), h.Deadline.Left()),
					Deadline: h.Deadline,
					Stop: func(ctx context.Context, _ string, grace time.Duration) error {
						return n.StopContainer(ctx, id, int64(grace/time.Second))
					},
					PreStop: func(ctx context.Context, _ string, _ *corev1.LifecycleHandler) { r.Run(ctx, h) },
				}))
				require.Equal(t, tt.took, time.Since(start).Round(100*time.Millisecond))
				status, err := n.ContainerStatus(t.Context(), id, false)
				require.NoError(t, err)
				require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, status.GetStatus().GetState())
				require.Equal(t, tt.exit, status.GetStatus().GetExitCode())
				require.Equal(t, tt.wantEvents, rec.all)
			})
		})
	}
}
