package metrics_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is the start time of the clock of a bed.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bed has the metrics of a program, with a fake clock.
type bed struct {
	*metrics.Metrics
	t          testing.TB
	clock      *testingclock.FakePassiveClock
	log        strings.Builder
	all, probe *prometheus.Registry
	health     *prometheus.Registry
	summary    func(context.Context) (*statsapi.Summary, error)
}

func newBed(tb testing.TB) *bed {
	tb.Helper()
	b := &bed{t: tb, clock: testingclock.NewFakePassiveClock(epoch), all: prometheus.NewRegistry(), probe: prometheus.NewRegistry(), health: prometheus.NewRegistry()}
	var err error
	b.Metrics, err = metrics.New(metrics.Config{
		Registerer: b.all, ProbeRegisterer: b.probe, HealthRegisterer: b.health, Clock: b.clock, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	require.NoError(tb, err)
	return b
}

// get returns the response of a handler.
func get(tb testing.TB, h http.Handler) string {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/", nil))
	require.Equal(tb, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

func (b *bed) page() string     { b.t.Helper(); return scrape(b.t, b.all) }
func (b *bed) probes() string   { b.t.Helper(); return scrape(b.t, b.probe) }
func (b *bed) slis() string     { b.t.Helper(); return scrape(b.t, b.health) }
func (b *bed) resource() string { b.t.Helper(); return get(b.t, b.Resource(b.summary)) }

// scrape returns the page of a registry.
func scrape(tb testing.TB, r *prometheus.Registry) string {
	tb.Helper()
	return get(tb, promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
}

// series returns the lines of a page with this prefix, without
// timestamps.
func series(page, prefix string) (found []string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// value returns the value of a series. The test fails if the series
// does not exist.
func value(tb testing.TB, page, name string) float64 {
	tb.Helper()
	for _, line := range series(page, name+" ") {
		v, err := strconv.ParseFloat(strings.Fields(strings.TrimPrefix(line, name))[0], 64)
		require.NoError(tb, err, line)
		return v
	}
	require.Fail(tb, "the series does not exist", "%s in\n%s", name, page)
	return 0
}

// is checks the value of a series of /metrics.
func (b *bed) is(name string, want float64) {
	b.t.Helper()
	require.InDelta(b.t, want, value(b.t, b.page(), name), 1e-9, name)
}

// none checks that /metrics has no series that starts with the text.
func (b *bed) none(prefix string) {
	b.t.Helper()
	require.Empty(b.t, series(b.page(), prefix))
}

// newPod returns a static pod that the agent received at epoch.
func newPod(name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "ns", UID: types.UID("uid-" + name),
		Annotations: map[string]string{
			podspec.SourceAnnotation: "file", podspec.SeenAnnotation: epoch.Format(time.RFC3339Nano),
		},
	}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

// observed returns the runtime state of a pod with running containers.
func observed(pod *corev1.Pod) *podcache.Status {
	s := &podcache.Status{
		UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
		Sandboxes: []*runtimeapi.PodSandboxStatus{{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
	}
	for _, c := range pod.Spec.Containers {
		s.Containers = append(s.Containers, container(c.Name, runtimeapi.ContainerState_CONTAINER_RUNNING))
	}
	return s
}

func container(name string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Id: "id-" + name, State: state, Labels: map[string]string{crilabels.ContainerName: name}}
}

// canceled returns a cancelled context.
func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
