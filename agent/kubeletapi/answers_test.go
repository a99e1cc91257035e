package kubeletapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/eviction"
)

// explained returns an agent that explains the pod ns/p, and returns an error for other pods.
func explained() *fake {
	later := at.Add(time.Minute)
	return &fake{
		pods: []agent.Pod{podOf("p", agent.Admitted), podOf("gone", agent.Admitted), podOf("broken", agent.Admitted)},
		explain: func(uid types.UID) (agent.Explanation, error) {
			switch uid {
			case "p":
				p := podOf("p", agent.Admitted)
				p.Spec.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
					Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				}}}
				return agent.Explanation{
					Pod: p, Why: []string{"one\ntwo"}, Next: []agent.Step{{What: "now"}, {At: later, What: "later"}}, Plan: "do\n\nit\n", Rank: "number 1",
				}, errors.New("a pod could not be measured")
			case "gone":
				return agent.Explanation{}, fmt.Errorf("explain: %w", agent.ErrUnknownPod)
			default:
				return agent.Explanation{}, errors.New("it can't be known")
			}
		},
		plan: func(context.Context) (agent.Plan, error) {
			return agent.Plan{Eviction: eviction.Decision{At: at, Conditions: []corev1.NodeConditionType{"Pressure"}}}, errors.New("it can't be known")
		},
	}
}

func TestResponses_JSONOrText(t *testing.T) {
	t.Parallel()
	cfg := kubeletapi.Config{
		Agent:   explained(),
		Info:    func() api.Agent { return api.Agent{Name: "me"} },
		Configz: func() map[string]any { return map[string]any{"kubeletconfig": map[string]int{"maxPods": 5}} },
	}
	for _, c := range []struct {
		path, accept string
		code         int
		text         string
	}{
		{"/agent/status", "", 200, `"name":"me"`},
		{"/configz", "", 200, `{"kubeletconfig":{"maxPods":5}}`},
		{"/agent/plan/eviction", "", 200, `"conditions":["Pressure"]`},
		{"/agent/plan/eviction", "text/plain", 200, "condition Pressure\n"},
		{"/agent/plan/eviction", "text/html, text/plain;q=0.5, application/json", 200, "condition Pressure\n"},
		{"/agent/plan/eviction", "application/json, text/plain", 200, `"conditions":["Pressure"]`},
		{"/agent/plan/eviction", ";;;,", 200, `"conditions":["Pressure"]`},
		{"/agent/plan/eviction?output=text", "application/json", 200, "condition Pressure\n"},
		{"/agent/plan/eviction?output=json", "text/plain", 200, `"conditions":["Pressure"]`},
		{"/agent/plan/gc", "", 500, "it can't be known\n"},
		{"/agent/explain/ns/p", "", 200, `"why":["one\ntwo"]`},
		{"/agent/explain/ns/none", "", 404, `pod "none" not found in namespace "ns"`},
		{"/agent/explain/other/p", "", 404, `pod "p" not found in namespace "other"`},
		{"/agent/explain/ns/gone", "", 404, `pod "gone" not found in namespace "ns": it was removed in the meantime`},
		{"/agent/explain/ns/broken", "", 500, "it can't be known\n"},
		{"/agent/explain/ns", "", 404, "not found"},
	} {
		w := answer(t, cfg, c.path, "Accept", c.accept)
		require.Equal(t, c.code, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.text, "%s %s", c.path, c.accept)
	}
}

func TestExplanation_IsReadableAsText(t *testing.T) {
	t.Parallel()
	log := eventlog.New(eventlog.Config{Clock: testingclock.NewFakePassiveClock(at)})
	for range 3 {
		log.Add(api.Event{Type: "Warning", Reason: "R", Message: "m", Kind: "Pod", Namespace: "ns", Name: "p"})
	}
	f := explained()
	explain := f.explain
	f.explain = func(uid types.UID) (agent.Explanation, error) {
		e, err := explain(uid)
		e.Pod.Spec.Spec.Containers = []corev1.Container{{Name: "c"}}
		return e, err
	}
	_, text := ask(t, kubeletapi.Config{Agent: f, Events: log}, "/agent/explain/ns/p", "Accept", "text/plain")
	require.Equal(t, "ns/p is CrashLoopBackOff (Running), 0 of 1 containers ready, 0 restarts\n"+
		"Why:\n  - one\n    two\nNext:\n  - now\n  - "+at.Add(time.Minute).Local().Format(time.TimeOnly)+" later\nPlan:\n  - do\n  - it\nEviction:\n  - number 1\n"+
		"Events:\n  - "+at.Local().Format(time.TimeOnly)+" Warning R: m (3 times)\n", text)
}

func TestSummary_IncompleteSummaryIsServed(t *testing.T) {
	t.Parallel()
	full := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n", Fs: &statsapi.FsStats{}, CPU: &statsapi.CPUStats{}}, Pods: []statsapi.PodStats{{
		PodRef: statsapi.PodReference{Name: "p"}, Memory: &statsapi.MemoryStats{}, EphemeralStorage: &statsapi.FsStats{},
		Containers: []statsapi.ContainerStats{{Name: "c", CPU: &statsapi.CPUStats{}, Logs: &statsapi.FsStats{}}},
	}}}
	cfg := kubeletapi.Config{Agent: &fake{summary: func(context.Context) (*statsapi.Summary, error) { return full, errors.New("some are missing") }}}
	_, body := ask(t, cfg, "/stats/summary")
	require.Contains(t, body, `"ephemeral-storage"`)
	for _, all := range []string{"/stats/summary?only_cpu_and_memory=false", "/stats/summary?only_cpu_and_memory", "/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true"} {
		_, same := ask(t, cfg, all)
		require.Equal(t, body, same, all)
	}
	_, less := ask(t, cfg, "/stats/summary?only_cpu_and_memory=true")
	require.Contains(t, less, `"name":"c"`)
	require.Contains(t, less, `"cpu"`)
	for _, gone := range []string{"ephemeral", "logs", `"fs"`} {
		require.NotContains(t, less, gone)
	}
	code, body := ask(t, kubeletapi.Config{}, "/stats/summary")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "could not measure the node\n  nothing is measured\n", body)
}

func TestPprof_IsServedWhenEnabled(t *testing.T) {
	t.Parallel()
	url, _ := run(t, kubeletapi.Config{Pprof: true, Metrics: page("metrics"), ProbeMetrics: page("probes"), ResourceMetrics: page("resource"), CadvisorMetrics: page("cadvisor")})
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "test",
		"/metrics": "metrics", "/metrics/probes": "probes", "/metrics/resource": "resource", "/metrics/cadvisor": "cadvisor",
	} {
		code, _, body := get(t, http.DefaultClient, url+path)
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, body, want, path)
	}
	code, body := ask(t, kubeletapi.Config{}, "/debug/pprof/")
	require.Equal(t, http.StatusMethodNotAllowed, code)
	require.Equal(t, "profiling endpoint is disabled.\n", body)
}

// The difference of two profiles can take longer than other responses may take. A profile without
// the parameter seconds is available while all streams are in use.
func TestPprof_DifferenceIsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Pprof: true, Events: fixed{}, MaxStreams: 1})
		_, closeDifference := p.ask(t, "/debug/pprof/heap?seconds=60")
		require.NoError(t, closeDifference())
		synctest.Wait()
		_, closeWatch := p.ask(t, "/agent/events?watch")
		_, closeProfile := p.ask(t, "/debug/pprof/goroutine")
		require.NoError(t, closeWatch())
		require.NoError(t, closeProfile())
		require.NoError(t, stop())
	})
}
