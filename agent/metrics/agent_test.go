package metrics_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/pleg"
)

// agentConfig returns the configuration of an agent on an in-memory runtime. The agent runs
// the pods, but rejects those with the name "refused".
func agentConfig(t *testing.T, node string, observers agent.Observers, pods ...*corev1.Pod) agent.Config {
	t.Helper()
	rt, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	require.NoError(t, err)
	return agent.Config{
		Name: "metrics", NodeName: node, Runtime: rt, Host: fakehost.New(rt), Observers: observers,
		Sources: []agent.Source{{Name: "file", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
			set(ctx, pods)
			<-ctx.Done()
			return nil
		}}},
		Admission: []lifecycle.NamedHandler{{Name: "names", Handler: lifecycle.AdmitFunc(
			func(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
				return lifecycle.PodAdmitResult{Admit: attrs.Pod.Name != "refused", Reason: "PodFeatureUnsupported"}
			})}},
	}
}

// ofAgent returns a pod with one container of a demo image.
func ofAgent(name, image string) *corev1.Pod {
	p := newPod(name, "app")
	p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, corev1.PullIfNotPresent
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, new(int64(1))
	return p
}

// Two agents share one Metrics: their counters and gauges are added, and the gauges of an
// agent disappear when the agent is removed.
func TestAddAgent_TwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := metrics.New(metrics.Config{Registerer: registry})
		require.NoError(t, err)
		is := func(name string, want float64) {
			t.Helper()
			require.InDelta(t, want, value(t, scrape(t, registry), name), 0, name)
		}

		var mu sync.Mutex
		relists := 0
		counted := agent.Observers{PLEG: pleg.Observer{RelistEnd: func(pleg.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			relists++
		}}}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var remove []func()
		errs := make([]error, 2)
		for i, c := range []agent.Config{
			agentConfig(t, "node1", m.Observers(counted), ofAgent("web", "demo/web:1"), ofAgent("db", "demo/db:1"), ofAgent("refused", "demo/web:1")),
			agentConfig(t, "node2", m.Observers(counted), ofAgent("web", "demo/web:1")),
		} {
			a, err := agent.New(c)
			require.NoError(t, err)
			remove = append(remove, m.AddAgent(a))
			running.Go(func() { errs[i] = a.Run(ctx) })
		}
		// Scrape while pods start.
		for range 50 {
			time.Sleep(time.Second / 5)
			scrape(t, registry)
		}
		synctest.Wait()

		require.Equal(t, []string{`kubelet_node_name{node="node1"} 1`, `kubelet_node_name{node="node2"} 1`},
			series(scrape(t, registry), "kubelet_node_name"))
		is("kubelet_running_pods", 3)
		is(`kubelet_running_containers{container_state="running"}`, 3)
		is(`kubelet_desired_pods{static="true"}`, 4)
		is(`kubelet_active_pods{static="true"}`, 3)
		is("kubelet_started_pods_total", 3)
		is(`kubelet_started_containers_total{container_type="container"}`, 3)
		is(`kubelet_admission_rejections_total{reason="PodFeatureUnsupported"}`, 1)
		mu.Lock()
		require.Positive(t, relists, "the program's own observer must be called, too")
		mu.Unlock()

		remove[0]()
		is("kubelet_running_pods", 1)
		is("kubelet_started_pods_total", 3)
		require.Len(t, series(scrape(t, registry), "kubelet_node_name"), 1)
		stop()
		running.Wait()
		require.Equal(t, make([]error, 2), errs)
		remove[1]()
		require.Empty(t, series(scrape(t, registry), "kubelet_running_pods"))
	})
}
