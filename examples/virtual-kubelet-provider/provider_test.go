package provider_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provider "github.com/kubeparts/kubeparts/examples/virtual-kubelet-provider"
)

// The provider implements the interfaces of virtual-kubelet.
var (
	_ node.PodLifecycleHandler = (*provider.Provider)(nil)
	_ node.PodNotifier         = (*provider.Provider)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a running provider with the statuses that it has reported to virtual-kubelet,
// each with its time: "2s Running ready=1/1 restarts=0".
type bench struct {
	*provider.Provider
	t     *testing.T
	began time.Time

	mu   sync.Mutex
	told []string
}

// run calls f with a provider of these programs, in a synctest bubble.
func run(t *testing.T, programs map[string]provider.Program, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		toy := &provider.Toy{Programs: programs}
		p, err := provider.New(toy)
		require.NoError(t, err)
		toy.Changed = p.Changed
		b := &bench{Provider: p, t: t, began: time.Now()}
		p.NotifyPods(t.Context(), func(pod *corev1.Pod) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, fmt.Sprintf("%v %s", time.Since(b.began).Round(time.Second), words(pod)))
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		f(b)
		stop()
		require.NoError(t, <-done)
		toy.Close()
	})
}

// heard returns the statuses that the provider has reported so far.
func (b *bench) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told)
}

// at waits until d after the start, and until all goroutines are idle.
func (b *bench) at(d time.Duration) {
	time.Sleep(time.Until(b.began.Add(d)))
	synctest.Wait()
}

// status returns a pod's status, as virtual-kubelet requests it.
func (b *bench) status(name string) string {
	b.t.Helper()
	pod, err := b.GetPod(b.t.Context(), "default", name)
	require.NoError(b.t, err)
	s, err := b.GetPodStatus(b.t.Context(), "default", name)
	require.NoError(b.t, err)
	require.Equal(b.t, pod.Status, *s)
	return words(pod)
}

func words(pod *corev1.Pod) string {
	var b strings.Builder
	ready, restarts, reason := 0, int32(0), ""
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			ready++
		}
		restarts += c.RestartCount
		if w := c.State.Waiting; w != nil {
			reason = " " + w.Reason
		}
		if e := c.State.Terminated; e != nil {
			reason = fmt.Sprintf(" exit=%d", e.ExitCode)
		}
	}
	fmt.Fprintf(&b, "%s ready=%d/%d restarts=%d%s", pod.Status.Phase, ready, len(pod.Spec.Containers), restarts, reason)
	return b.String()
}

func newPod(name, image string, change ...func(*corev1.PodSpec)) *corev1.Pod {
	grace := int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-1"},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: image}},
		},
	}
	for _, f := range change {
		f(&pod.Spec)
	}
	return pod
}

// forever runs until it is stopped.
func forever(ctx context.Context) int32 {
	<-ctx.Done()
	return 0
}

// crash exits with code after a second.
func crash(code int32) func(context.Context) int32 {
	return func(ctx context.Context) int32 {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		return code
	}
}

func execProbe(change ...func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}},
		PeriodSeconds:    1,
		TimeoutSeconds:   1,
		FailureThreshold: 3,
		SuccessThreshold: 1,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestProvider_RestartsACrashWithBackoff(t *testing.T) {
	run(t, map[string]provider.Program{"crash": {Main: crash(3)}}, func(b *bench) {
		require.NoError(t, b.CreatePod(t.Context(), newPod("web", "crash")))
		b.at(25 * time.Second)
		require.Equal(t, []string{
			"0s Running ready=1/1 restarts=0",
			"1s Running ready=1/1 restarts=1",
			"2s Running ready=0/1 restarts=1 CrashLoopBackOff",
			"12s Running ready=1/1 restarts=2", // 10 s after the exit of the container
			"13s Running ready=0/1 restarts=2 CrashLoopBackOff",
		}, b.heard())
		b.at(34 * time.Second) // 20 s after the next exit
		require.Equal(t, "Running ready=0/1 restarts=3 CrashLoopBackOff", b.status("web"))
		pod, err := b.GetPod(t.Context(), "default", "web")
		require.NoError(t, err)
		c := pod.Status.ContainerStatuses[0]
		require.Equal(t, int32(3), c.LastTerminationState.Terminated.ExitCode)
		require.Equal(t, "back-off 40s restarting failed container=main pod=web_default(uid-1)", c.State.Waiting.Message)
	})
}

func TestProvider_RemovesDeadContainers(t *testing.T) {
	toy := &provider.Toy{Programs: map[string]provider.Program{"crash": {Main: crash(1)}}}
	synctest.Test(t, func(t *testing.T) {
		p, err := provider.New(toy)
		require.NoError(t, err)
		toy.Changed = p.Changed
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		pod := newPod("web", "crash")
		require.NoError(t, p.CreatePod(ctx, pod))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, len(toy.Containers(pod.UID)), 2, "only the newest exited container and the running one must exist")
		require.NoError(t, p.DeletePod(ctx, pod))
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Empty(t, toy.Containers(pod.UID))
		stop()
		require.NoError(t, <-done)
		toy.Close()
	})
}

func TestProvider_RestartsAfterAFailedLivenessProbe(t *testing.T) {
	var sick atomic.Bool
	programs := map[string]provider.Program{"web": {Main: forever, Exec: func([]string, io.Writer) int32 {
		if sick.Load() {
			return 1
		}
		return 0
	}}}
	run(t, programs, func(b *bench) {
		require.NoError(t, b.CreatePod(t.Context(), newPod("web", "web", func(s *corev1.PodSpec) {
			s.Containers[0].LivenessProbe = execProbe()
		})))
		b.at(10 * time.Second)
		require.Equal(t, "Running ready=1/1 restarts=0", b.status("web"))
		sick.Store(true)
		b.at(14 * time.Second)
		sick.Store(false)
		b.at(20 * time.Second)
		require.Equal(t, "Running ready=1/1 restarts=1", b.status("web"))
	})
}

func TestProvider_ReadinessFollowsTheProbe(t *testing.T) {
	var ready atomic.Bool
	programs := map[string]provider.Program{"web": {Main: forever, Exec: func([]string, io.Writer) int32 {
		if ready.Load() {
			return 0
		}
		return 1
	}}}
	run(t, programs, func(b *bench) {
		require.NoError(t, b.CreatePod(t.Context(), newPod("web", "web", func(s *corev1.PodSpec) {
			s.Containers[0].ReadinessProbe = execProbe()
		})))
		b.at(5 * time.Second)
		require.Equal(t, "Running ready=0/1 restarts=0", b.status("web"))
		ready.Store(true)
		b.at(7 * time.Second)
		require.Equal(t, "Running ready=1/1 restarts=0", b.status("web"))
		ready.Store(false)
		b.at(15 * time.Second)
		require.Equal(t, "Running ready=0/1 restarts=0", b.status("web"))
	})
}

func TestProvider_StartupProbe(t *testing.T) {
	programs := map[string]provider.Program{"slow": {Main: forever, Exec: func([]string, io.Writer) int32 { return 1 }}}
	run(t, programs, func(b *bench) {
		require.NoError(t, b.CreatePod(t.Context(), newPod("web", "slow", func(s *corev1.PodSpec) {
			s.Containers[0].StartupProbe = execProbe(func(p *corev1.Probe) { p.FailureThreshold = 5 })
		})))
		b.at(3 * time.Second)
		require.Equal(t, "Running ready=0/1 restarts=0", b.status("web"))
		b.at(6 * time.Second)
		require.Equal(t, "Running ready=0/1 restarts=1", b.status("web"))
	})
}

func TestProvider_PodCompletes(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy]string{
		corev1.RestartPolicyNever:     "Failed ready=0/1 restarts=0 exit=7",
		corev1.RestartPolicyOnFailure: "Running ready=0/1 restarts=1 CrashLoopBackOff",
	} {
		t.Run(string(policy), func(t *testing.T) {
			run(t, map[string]provider.Program{"job": {Main: crash(7)}}, func(b *bench) {
				pod := newPod("job", "job", func(s *corev1.PodSpec) { s.RestartPolicy = policy })
				require.NoError(t, b.CreatePod(t.Context(), pod))
				b.at(5 * time.Second)
				require.Equal(t, want, b.status("job"))
				require.NoError(t, b.DeletePod(t.Context(), pod))
				b.at(10 * time.Second)
				_, err := b.GetPod(t.Context(), "default", "job")
				require.True(t, errdefs.IsNotFound(err))
			})
		})
	}
}

func TestProvider_DeletePod(t *testing.T) {
	for name, tc := range map[string]struct {
		main func(context.Context) int32
		last string
	}{
		"asked":   {forever, "10s Succeeded ready=0/1 restarts=0 exit=0"},
		"ignored": {func(ctx context.Context) int32 { <-ctx.Done(); time.Sleep(time.Minute); return 0 }, "15s Failed ready=0/1 restarts=0 exit=137"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, map[string]provider.Program{"web": {Main: tc.main}}, func(b *bench) {
				pod := newPod("web", "web")
				require.NoError(t, b.CreatePod(t.Context(), pod))
				b.at(10 * time.Second)
				require.NoError(t, b.DeletePod(t.Context(), pod))
				b.at(30 * time.Second)
				heard := b.heard()
				require.Equal(t, tc.last, heard[len(heard)-1])
				all, err := b.GetPods(t.Context())
				require.NoError(t, err)
				require.Empty(t, all)
				require.True(t, errdefs.IsNotFound(b.DeletePod(t.Context(), pod)), "a second deletion must return not found")
			})
		})
	}
}

func TestProvider_UnsupportedPods(t *testing.T) {
	run(t, nil, func(b *bench) {
		err := b.CreatePod(t.Context(), newPod("web", "web", func(s *corev1.PodSpec) { s.InitContainers = s.Containers }))
		require.True(t, errdefs.IsInvalidInput(err))
		require.NoError(t, b.CreatePod(t.Context(), newPod("other", "unknown")))
		b.at(time.Second)
		require.Equal(t, "Pending ready=0/1 restarts=0 ContainerCreating", b.status("other"))
	})
}
