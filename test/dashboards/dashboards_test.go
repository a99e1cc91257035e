package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubeStateMetrics is the component that most queries of the first dashboard need.
const kubeStateMetrics = "kube-state-metrics"

// notSimulated returns the metrics that a simulated node does not have, or that stay 0 there.
func notSimulated() []string {
	return []string{
		"container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total",
		"container_memory_cache", "container_memory_swap",
		"container_fs_reads_total", "container_fs_writes_total", "container_fs_reads_bytes_total", "container_fs_writes_bytes_total",
		"container_network_receive_bytes_total", "container_network_transmit_bytes_total",
		"container_network_receive_packets_total", "container_network_transmit_packets_total",
		"container_network_receive_packets_dropped_total", "container_network_transmit_packets_dropped_total",
	}
}

func newPod() *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "busy", ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}},
	}, {Name: "job", Image: "job", ImagePullPolicy: corev1.PullIfNotPresent}}}}
	p.Name, p.Namespace, p.UID = "web", "ns", "uid-web"
	p.Annotations = map[string]string{podspec.SeenAnnotation: time.Now().Format(time.RFC3339Nano)}
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, new(int64(5))
	return p
}

// simulated runs an agent with a pod on a simulated node and returns its pages as handlers.
func simulated(ctx context.Context, t *testing.T) (handlers map[string]http.Handler, begin func(), ended <-chan error) {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{
		Images: []fakecri.Image{{Name: "busy", SizeBytes: 1 << 20}, {Name: "job", SizeBytes: 1 << 20}},
		Programs: map[string]fakecri.Program{
			"busy": {CPUMilli: 200, Memory: fakecri.Growth{Start: 10 << 20, PerSecond: 1000}, Disk: fakecri.Growth{PerSecond: 1000}},
			"job":  {Runtime: 20 * time.Second}, // it is restarted, so that the pod is synced
		},
	})
	require.NoError(t, err)
	host := fakehost.New(node)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m, err := metrics.New(metrics.Config{Registerer: registry})
	require.NoError(t, err)
	start := make(chan struct{})
	a, err := agent.New(agent.Config{
		Name: "dashboards", NodeName: "node1", Runtime: node, Host: host, Root: t.TempDir(), Observers: m.Observers(agent.Observers{}),
		Sources: []agent.Source{{Name: "file", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
			set(ctx, nil)
			select {
			case <-start:
				set(ctx, []*corev1.Pod{newPod()})
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		}}},
	})
	require.NoError(t, err)
	m.AddAgent(a)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return map[string]http.Handler{
		"/metrics":          observed(m, registry),
		"/metrics/resource": m.Resource(a.Summary),
		"/metrics/cadvisor": m.Cadvisor(metrics.CadvisorSource{Usage: host.Cgroups, Pods: a.Pods, Node: a.Node}),
	}, func() { close(start) }, done
}

// observed returns the page of a registry. It also counts a call of the runtime for each request,
// because an agent calls a simulated node without gRPC.
func observed(m *metrics.Metrics, registry *prometheus.Registry) http.Handler {
	call := m.CallObserver()
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = call(r.Context(), "/runtime.v1.RuntimeService/Version", nil, nil, nil, invoke)
		page.ServeHTTP(w, r)
	})
}

// scrapeAll scrapes all handlers, and the stand-in for kube-state-metrics, at the current time.
func scrapeAll(t *testing.T, s *store, handlers map[string]http.Handler) time.Time {
	t.Helper()
	at := time.Now()
	for path, h := range handlers {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NoError(t, s.scraped(w.Body.Bytes(), at, target(path)), path)
	}
	text, err := files.ReadFile("testdata/kube-state-metrics.txt")
	require.NoError(t, err)
	page := strings.NewReplacer("NAMESPACE", "ns", "POD", "web", "CONTAINER", "main").Replace(string(text))
	require.NoError(t, s.scraped([]byte(page), at, map[string]string{"job": kubeStateMetrics}))
	return at
}

// TestQueries_HaveValuesOnASimulatedNode evaluates all queries: queries that need only the agent,
// queries that join its series with series of kube-state-metrics, and queries of features that
// the agent does not have.
func TestQueries_HaveValuesOnASimulatedNode(t *testing.T) {
	all, err := dashboards()
	require.NoError(t, err)
	s := newStore()
	var at time.Time
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		handlers, begin, ended := simulated(ctx, t)
		time.Sleep(5 * time.Second)
		scrapeAll(t, s, handlers)
		begin()
		for range 4 {
			time.Sleep(15*time.Second + time.Millisecond)
			at = scrapeAll(t, s, handlers)
		}
		cancel()
		require.NoError(t, <-ended)
	})
	v := variables{"ns", "web", "agent", "1m30s"}
	e := newEvaluator(s, at, v)
	defer func() { require.NoError(t, e.close()) }()
	for _, d := range all {
		require.NoError(t, e.record(t.Context(), d.Rules))
	}
	values, simulated := 0, 0
	for _, d := range all {
		for _, q := range d.Queries {
			names, err := metricsOf(q.Expr)
			require.NoError(t, err)
			if q.Needs != "" && q.Needs != kubeStateMetrics {
				for _, name := range names {
					require.False(t, s.has(name), "%s exists now: remove needs from %s / %s", name, d.Title, q.Panel)
				}
				continue
			}
			if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(notSimulated(), name) }) {
				simulated++
				continue
			}
			why, err := e.missing(t.Context(), q)
			require.NoError(t, err)
			require.Empty(t, why, "%s / %s: %s", d.Title, q.Panel, v.expand(q.Expr))
			values++
		}
	}
	require.Equal(t, 36, values)
	require.Equal(t, 21, simulated)
}

// TestQueries_NameWhatTheyNeed checks that exactly the queries that need kube-state-metrics read
// its metrics, directly or through a recording rule.
func TestQueries_NameWhatTheyNeed(t *testing.T) {
	all, err := dashboards()
	require.NoError(t, err)
	require.Len(t, all, 3)
	joined := map[string]bool{}
	reads := func(expr string) (is bool) {
		names, err := metricsOf(expr)
		require.NoError(t, err)
		require.NotEmpty(t, names, expr)
		for _, name := range names {
			is = is || strings.HasPrefix(name, "kube_") || joined[name]
		}
		return is
	}
	for _, d := range all {
		for _, r := range d.Rules {
			require.True(t, reads(r.Expr), r.Record)
			joined[r.Record] = true
		}
		for _, q := range d.Queries {
			require.Equal(t, q.Needs == kubeStateMetrics, reads(q.Expr), "%s / %s: %s", d.Title, q.Panel, q.Expr)
		}
	}
}

// server serves fixed pages. The counter counts increases with each request.
func server(t *testing.T, pages map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.URL
}

func TestRun_ReportsQueriesWithoutValues(t *testing.T) {
	url := server(t, map[string]string{"/metrics": "go_goroutines 5\n", "/metrics/cadvisor": "", "/metrics/resource": ""})
	var out bytes.Buffer
	err := run(t.Context(), []string{"-url", url, "-pod", "web", "-scrapes", "2", "-period", "1ms"}, &out)
	require.ErrorContains(t, err, "queries have no value")
	require.Contains(t, out.String(), "Kubernetes / Kubelet / RPC rate: needs API server\n")
	require.Contains(t, out.String(), `Kubernetes / Kubelet / Running Pods: no value: sum(kubelet_running_pods{cluster="", job="kubelet", metrics_path="/metrics", instance=~".*"})`)
	require.NotContains(t, out.String(), "Goroutines")
	require.Contains(t, out.String(), "\n1 queries have values\n")
}

func TestRun_RefusesWhatItCannotScrape(t *testing.T) {
	ctx := t.Context()
	require.EqualError(t, run(ctx, nil, os.Stdout), "-pod is required")
	require.ErrorContains(t, run(ctx, []string{"-x"}, os.Stdout), "flag provided but not defined")
	require.ErrorContains(t, run(ctx, []string{"-pod", "a", "-url", "http://127.0.0.1:1"}, os.Stdout), "connection refused")
	require.ErrorContains(t, run(ctx, []string{"-pod", "a", "-url", ":"}, os.Stdout), "missing protocol scheme")
	require.ErrorContains(t, run(ctx, []string{"-pod", "a", "-url", server(t, nil)}, os.Stdout), "/metrics: 404 Not Found")
	broken := server(t, map[string]string{"/metrics": "{"})
	require.ErrorContains(t, run(ctx, []string{"-pod", "a", "-url", broken}, os.Stdout), "parse /metrics: ")
	canceled, cancel := context.WithCancel(ctx)
	url := server(t, map[string]string{"/metrics": "", "/metrics/cadvisor": "", "/metrics/resource": ""})
	time.AfterFunc(100*time.Millisecond, cancel)
	require.ErrorIs(t, run(canceled, []string{"-pod", "a", "-url", url, "-period", "1h"}, os.Stdout), context.Canceled)
}

func TestMissing_TellsTheWaysToHaveNoValue(t *testing.T) {
	s := newStore()
	at := time.Unix(1000, 0)
	require.NoError(t, s.scraped([]byte("zero 0\nless -1\nmore 1\nmore_total 2 999000\n"), at, nil))
	require.NoError(t, s.scraped([]byte("more 7\n"), at, nil), "a second sample with the same time must be ignored")
	e := newEvaluator(s, at, variables{})
	defer func() { require.NoError(t, e.close()) }()
	for expr, want := range map[string]string{
		"none": "no value", "zero": "all values are 0 or NaN", "zero / zero": "all values are 0 or NaN", "less": "the value is -1",
		"more": "", "more == 1": "", "more_total": "",
	} {
		why, err := e.missing(t.Context(), query{Expr: expr})
		require.NoError(t, err)
		require.Equal(t, want, why, expr)
	}
	why, err := e.missing(t.Context(), query{Expr: "zero", Zero: "nothing happens"})
	require.NoError(t, err)
	require.Empty(t, why)
	for _, expr := range []string{"(", `more{a="`, "1", "more or on() group_left more"} {
		_, err = e.missing(t.Context(), query{Expr: expr})
		require.Error(t, err, expr)
	}
	require.Error(t, e.record(t.Context(), []rule{{"a", "("}}))
	_, err = metricsOf("(")
	require.Error(t, err)
	_, _, err = s.LabelNames(t.Context(), nil)
	require.Error(t, err)
	_, _, err = s.LabelValues(t.Context(), "a", nil)
	require.Error(t, err)
}
