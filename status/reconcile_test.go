package status_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// TestReconcile_CorrectsChangesByOtherWriters: the node receives another writer's change only
// as a new pod object. The reported status has not changed, but it must be published again.
func TestReconcile_CorrectsChangesByOtherWriters(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(*status.Publisher, *corev1.Pod){
		"at the next tick": func(*status.Publisher, *corev1.Pod) { time.Sleep(10 * time.Second) },
		"when asked to":    func(p *status.Publisher, pod *corev1.Pod) { p.Trigger(pod.UID) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI()
			seen := a.put(numbered(1)[0])
			sink, err := status.NewAPIServer(status.APIServerConfig{Pods: a.Pods})
			require.NoError(t, err)
			m, p, stop := reconciling(t, sink)
			defer stop()
			m.SetPodStatus(seen, simple("Running", "True"))
			require.NoError(t, p.Flush(t.Context()))
			time.Sleep(time.Minute)
			require.Equal(t, []string{"patch p0"}, a.asked(), "%s: six ticks without a change must not cause a call", name)

			spoilt := a.edit("p0", func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = "False" })
			_, changed := m.SetPodStatus(spoilt, simple("Running", "True"))
			require.False(t, changed)
			notice(p, spoilt)
			synctest.Wait()
			require.Equal(t, []string{"patch p0"}, a.asked(), name)
			require.Equal(t, corev1.ConditionTrue, a.pod("p0").Status.Conditions[0].Status, name)
		})
	}
}

// reconciling returns a publisher that runs and reconciles every ten seconds.
func reconciling(t *testing.T, sink status.Sink, observe ...func(status.Publication)) (*status.Manager, *status.Publisher, func()) {
	t.Helper()
	m, err := status.New(status.Config{})
	require.NoError(t, err)
	p, err := status.NewPublisher(status.PublisherConfig{
		Statuses: m, Sink: sink, Reconcile: 10 * time.Second,
		Observer: status.PublisherObserver{Published: func(seen status.Publication) {
			for _, o := range observe {
				o(seen)
			}
		}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	return m, p, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func TestReconcile_SkipsGoneAndQueuedPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // several publications at a time
		var calls []string
		var again []bool
		m, _, stop := reconciling(t, status.SinkFunc(func(_ context.Context, c status.Change) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, c.Pod.Name)
			return map[string]error{"p0": status.ErrGone, "p1": context.DeadlineExceeded}[c.Pod.Name]
		}), func(seen status.Publication) {
			mu.Lock()
			defer mu.Unlock()
			if seen.Pod.Name == "p2" {
				again = append(again, seen.Repeated)
			}
		})
		for _, pod := range numbered(3) {
			m.SetPodStatus(pod, simple("Running", "True"))
		}
		time.Sleep(25 * time.Second)
		stop()
		count := func(name string) int {
			return len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != name }))
		}
		require.Equal(t, 1, count("p0"), "a removed pod must not be published again")
		require.LessOrEqual(t, count("p1"), 9, "the pod must stay in back-off")
		require.Equal(t, []bool{false, true, true}, again, "two ticks, both reported")
	})
}

func TestPublisherConfig_ReconcileIsNotNegative(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, status.PublisherConfig{Reconcile: -1}.Validate(), "field Reconcile: -1ns is negative")
}

// TestGenerate_HealthOfDevices checks KEP-4680.
func TestGenerate_HealthOfDevices(t *testing.T) {
	t.Parallel()
	health := func(h corev1.ResourceHealthStatus) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{{ResourceID: "gpu0", Health: h}}}}
	}
	in := status.Input{
		Pod: newPod("Always", "a", "b"), Runtime: runningIn("a", "b"),
		Devices: map[string][]corev1.ResourceStatus{"a": health(corev1.ResourceHealthStatusHealthy)},
	}
	s := status.Generate(in)
	require.Equal(t, in.Devices["a"], s.ContainerStatuses[0].AllocatedResourcesStatus)
	require.Nil(t, s.ContainerStatuses[1].AllocatedResourcesStatus)
	s.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[0].Health = corev1.ResourceHealthStatusUnhealthy
	require.Equal(t, health(corev1.ResourceHealthStatusHealthy), in.Devices["a"], "the result must be a copy")

	in.Previous, in.Devices = s, nil
	require.Equal(t, health(corev1.ResourceHealthStatusUnhealthy), status.Generate(in).ContainerStatuses[0].AllocatedResourcesStatus, "without a newer health, the previous one must be kept")
	in.Runtime = nil
	require.Equal(t, health(corev1.ResourceHealthStatusUnhealthy), status.Generate(in).ContainerStatuses[0].AllocatedResourcesStatus)
	in.Devices = map[string][]corev1.ResourceStatus{}
	require.Nil(t, status.Generate(in).ContainerStatuses[0].AllocatedResourcesStatus, "a container without devices must have no health")
	in.Devices, in.Runtime = nil, &podcache.Status{}
	require.Nil(t, status.Generate(in).ContainerStatuses[0].AllocatedResourcesStatus, "another container must not keep the health")
}
