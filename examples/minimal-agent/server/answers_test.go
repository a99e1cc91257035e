package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server/podlogs"
)

type plan struct {
	Go string `json:"go"`
}

func (p plan) String() string { return "go: " + p.Go }

func TestPodListsAreWholeWhateverIsInThem(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for range 500 {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"html": "<b>&", "long": strings.Repeat("x", 1000)}},
		})
	}
	for _, want := range [][]*corev1.Pod{nil, pods[:1], pods} {
		cfg := server.Config{
			Pods:        func() []*corev1.Pod { return want },
			RunningPods: func(context.Context) ([]*corev1.Pod, error) { return want, nil },
		}
		for _, path := range []string{"/pods", "/runningpods", "/runningpods/"} {
			w := answer(t, cfg, path)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			var list corev1.PodList
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
			require.Equal(t, "PodList v1", list.Kind+" "+list.APIVersion)
			require.NotNil(t, list.Items)
			require.Len(t, list.Items, len(want))
			for i := range want {
				require.Equal(t, *want[i], list.Items[i])
			}
		}
	}
	code, body := ask(t, server.Config{RunningPods: func(context.Context) ([]*corev1.Pod, error) { return nil, errors.New("gone") }}, "/runningpods")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "gone\n", body)
}

func TestAnswersAreJSONOrText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cfg := server.Config{
		Status:  func(context.Context) api.Status { return api.Status{Agent: api.Agent{Name: "me"}} },
		Configz: func() map[string]any { return map[string]any{"kubeletconfig": map[string]int{"maxPods": 5}} },
		Explain: func(_ context.Context, namespace, name string) (api.Explanation, error) {
			if name == "none" {
				return api.Explanation{}, &server.StatusError{Code: http.StatusNotFound, Message: "no " + namespace + "/" + name}
			}
			return api.Explanation{
				Pod: api.Pod{Namespace: namespace, Name: name, State: "CrashLoopBackOff", Phase: "Running", Events: []api.Event{{Time: at, Type: "Warning", Reason: "R", Message: "m", Count: 3}}},
				Why: []string{"one\ntwo"}, Next: []api.Step{{What: "now"}, {At: &at, What: "later"}}, Plan: "do\n\nit\n", Stays: "number 1",
			}, nil
		},
		EvictionPlan: func(context.Context) (server.Plan, error) { return plan{"all"}, nil },
		GCPlan:       func(context.Context) (server.Plan, error) { return nil, errors.New("it can't be known") },
	}
	for _, c := range []struct {
		path, accept string
		code         int
		text         string
	}{
		{"/status", "", 200, `"name":"me"`},
		{"/configz", "", 200, `{"kubeletconfig":{"maxPods":5}}`},
		{"/plan/eviction", "", 200, `{"go":"all"}`},
		{"/plan/eviction", "text/plain", 200, "go: all\n"},
		{"/plan/eviction", "text/html, text/plain;q=0.5, application/json", 200, "go: all\n"},
		{"/plan/eviction", "application/json, text/plain", 200, `{"go":"all"}`},
		{"/plan/eviction", ";;;,", 200, `{"go":"all"}`},
		{"/plan/eviction?output=text", "application/json", 200, "go: all\n"},
		{"/plan/eviction?output=json", "text/plain", 200, `{"go":"all"}`},
		{"/plan/gc", "", 500, "it can't be known\n"},
		{"/explain/ns/p", "", 200, `"why":["one\ntwo"]`},
		{"/explain/ns/none", "", 404, "no ns/none\n"},
		{"/explain/ns", "", 404, "not found"},
	} {
		w := answer(t, cfg, c.path, "Accept", c.accept)
		require.Equal(t, c.code, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.text, "%s %s", c.path, c.accept)
	}
	_, text := ask(t, cfg, "/explain/ns/p", "Accept", "text/plain")
	require.Equal(t, "ns/p is CrashLoopBackOff (Running), 0 of 0 containers ready, 0 restarts\n"+
		"Why:\n  - one\n    two\nNext:\n  - now\n  - "+at.Local().Format(time.TimeOnly)+" later\nPlan:\n  - do\n  - it\nEviction:\n  - number 1\n"+
		"Events:\n  - "+at.Local().Format(time.TimeOnly)+" Warning R: m (3 times)\n", text)
}

func TestSummaryThatIsIncompleteIsServed(t *testing.T) {
	t.Parallel()
	full := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n", Fs: &statsapi.FsStats{}, CPU: &statsapi.CPUStats{}}, Pods: []statsapi.PodStats{{
		PodRef: statsapi.PodReference{Name: "p"}, Memory: &statsapi.MemoryStats{}, EphemeralStorage: &statsapi.FsStats{},
		Containers: []statsapi.ContainerStats{{Name: "c", CPU: &statsapi.CPUStats{}, Logs: &statsapi.FsStats{}}},
	}}}
	cfg := server.Config{Summary: func(context.Context) (*statsapi.Summary, error) { return full, errors.New("some are missing") }}
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
	code, _ := ask(t, server.Config{Summary: func(context.Context) (*statsapi.Summary, error) { return nil, nil }}, "/stats/summary")
	require.Equal(t, http.StatusInternalServerError, code)
}

func TestLogsThatCannotBeReadSayWhy(t *testing.T) {
	t.Parallel()
	cfg := server.Config{Logs: func(_ context.Context, _, _, container string, _ bool) (podlogs.Source, error) {
		if container == "none" {
			return podlogs.Source{}, &server.StatusError{Code: http.StatusBadRequest, Message: "it waits"}
		}
		return podlogs.Source{Root: t.TempDir(), Dir: "x"}, nil
	}}
	code, body := ask(t, cfg, "/logs/ns/p/none")
	require.Equal(t, http.StatusBadRequest, code)
	require.Equal(t, "it waits\n", body)
	code, body = ask(t, cfg, "/logs/ns/p/c?follow&tailLines=all&stream=All&timestamps=false&sinceTime=2026-01-02T03:04:05Z")
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, "container \"c\" in pod \"p\": there is no log of it\n", body)
}

func TestProfilesAreServedWhenAskedFor(t *testing.T) {
	t.Parallel()
	url, _ := run(t, server.Config{Pprof: true, Metrics: page("metrics"), ProbeMetrics: page("probes"), ResourceMetrics: page("resource")})
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "test",
		"/metrics": "metrics", "/metrics/probes": "probes", "/metrics/resource": "resource",
	} {
		code, _, body := get(t, http.DefaultClient, url+path)
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, body, want, path)
	}
	code, _ := ask(t, server.Config{}, "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
}
