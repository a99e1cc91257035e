package commands_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// now is the current time of all tests.
func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *time.Time { return new(now().Add(-d)) }

// agentStatus returns a status with all kinds of content.
func agentStatus() api.Status {
	return api.Status{
		Now:     now(),
		Agent:   api.Agent{Name: "minimal-agent", Version: "v0.36.0", Started: *ago(26 * time.Hour), Adopted: 2},
		Runtime: api.Runtime{Name: "containerd", Version: "2.2.0", Endpoint: "unix:///run/containerd/containerd.sock"},
		Node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("7900Mi"), corev1.ResourcePods: resource.MustParse("110"),
			},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			},
		}},
		Managers: []api.Manager{
			{Name: "runtime", OK: true}, {Name: "pleg", OK: true, Message: "relisted 1s ago"}, {Name: "manifests", Message: "folder cannot be read"},
		},
		Signals: []api.Signal{
			{Name: "memory.available", Available: 90 << 20, Capacity: 8 << 30, Time: ago(time.Second), Thresholds: []api.Threshold{
				{Text: "memory.available<100Mi", Value: 100 << 20, Since: ago(40 * time.Second)},
				{Text: "memory.available<1Gi", Value: 1 << 30, GraceSeconds: 90, Since: ago(time.Minute)},
			}},
			{Name: "nodefs.available", Available: 60 << 30, Capacity: 100 << 30, Time: ago(time.Second), Thresholds: []api.Threshold{
				{Text: "nodefs.available<10%", Value: 10 << 30},
			}},
			{Name: "nodefs.inodesFree", Available: 350000, Capacity: 6500000, Time: ago(time.Second), Thresholds: []api.Threshold{
				{Text: "nodefs.inodesFree<5%", Value: 325000},
			}},
			{Name: "pid.available", Thresholds: []api.Threshold{{Text: "pid.available<100", Value: 100}}},
		},
		Pods:     agentPods(),
		Problems: []string{"bad.yaml: spec.colour: unknown field"},
	}
}

func agentPods() []api.Pod {
	event := func(number uint64, reason, message string, d time.Duration, count int) api.Event {
		return api.Event{Number: number, Time: *ago(d), Type: "Warning", Reason: reason, Message: message, Kind: "Pod", Namespace: "default", Name: "flaky-node1", Count: count}
	}
	web := func(namespace string) api.Pod {
		return api.Pod{
			Namespace: namespace, Name: "web-node1", UID: namespace + "-web", Phase: corev1.PodRunning, State: "Running", Ready: 1, IP: "10.88.0.2",
			Containers: []api.Container{{Name: "setup", Kind: "init"}, {Name: "server", Kind: "main", Ready: true}},
			Started:    ago(25 * time.Hour), Usage: &api.Usage{CPUCores: new(0.25), MemoryBytes: 120 << 20, EphemeralBytes: 5 << 30},
		}
	}
	return []api.Pod{
		{
			Namespace: "default", Name: "flaky-node1", UID: "flaky", Phase: corev1.PodRunning, State: "CrashLoopBackOff", Restarts: 7, Started: ago(10 * time.Minute),
			Message:    "back-off 5m\x1b[31m\nand a line that \u202eturns",
			Containers: []api.Container{{Name: "crash", Kind: "main"}}, Usage: &api.Usage{CPUCores: new(1.5), MemoryBytes: 512 << 10},
			Events: []api.Event{event(12, "BackOff", "Back-off restarting failed container", 3*time.Second, 9), event(9, "Unhealthy", "Liveness probe failed: \x1b[2J", time.Minute, 1)},
		},
		{Namespace: "default", Name: "job-node1", UID: "job", Phase: corev1.PodSucceeded, State: "Completed", Containers: []api.Container{{Name: "job", Kind: "main"}}, Started: ago(3 * time.Hour)},
		{
			Namespace: "default", Name: "two-node1", UID: "two", Phase: corev1.PodPending, State: "Init:0/1",
			Containers: []api.Container{{Name: "a", Kind: "main"}, {Name: "b", Kind: "main"}, {Name: "mesh", Kind: "sidecar"}},
		},
		web("default"), web("shop"),
		{Namespace: "shop", Name: "webhook-node1", UID: "hook", Phase: corev1.PodFailed, State: "Evicted", Message: "The node was low on resource: memory.", Containers: []api.Container{{Name: "hook", Kind: "main"}}, Started: ago(48 * time.Hour)},
	}
}

// agentEvents returns the events of /agent/events.
func agentEvents() []api.Event {
	return []api.Event{
		{Number: 1, Time: *ago(time.Hour), Type: "Normal", Reason: "Started", Message: "Container started", Kind: "Pod", Namespace: "default", Name: "web-node1", Count: 1},
		{Number: 2, Time: *ago(2 * time.Minute), Type: "Warning", Reason: "BackOff", Message: "Back-off restarting\x1b]0;x\a failed container", Kind: "Pod", Namespace: "default", Name: "flaky-node1", Count: 9},
		{Number: 3, Time: *ago(time.Second), Type: "Normal", Reason: "NodeHasMemoryPressure", Message: "short of memory", Kind: "Node", Name: "node1", Count: 1},
	}
}

// serveAgent serves the endpoints of an agent until the test ends.
func serveAgent(t *testing.T, status func() api.Status) string {
	t.Helper()
	answer := func(value func(*http.Request) any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			data, err := json.Marshal(value(r))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(data)
		}
	}
	plan := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "text/plain" {
				fmt.Fprintln(w, text)
				return
			}
			answer(func(*http.Request) any { return map[string]string{"text": text} })(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /agent/status", answer(func(*http.Request) any { return status() }))
	mux.HandleFunc("GET /pods", answer(func(*http.Request) any { return podList(status().Pods) }))
	mux.HandleFunc("GET /agent/plan/eviction", plan("memory.available<100Mi (hard): met\nevict default/web-node1"))
	mux.HandleFunc("GET /agent/plan/gc", plan("remove container \x1b[5mx"))
	mux.HandleFunc("GET /agent/events", func(w http.ResponseWriter, r *http.Request) {
		for _, e := range agentEvents() {
			data, _ := json.Marshal(e)
			fmt.Fprintf(w, "%s\n", data)
		}
	})
	mux.HandleFunc("GET /agent/explain/default/nopod", answer(func(*http.Request) any {
		return api.Explanation{Pod: api.Pod{Namespace: "default", Name: "nopod", State: "InvalidManifest"}, Why: []string{"nopod.yaml: unknown field"}}
	}))
	mux.HandleFunc("GET /agent/explain/default/nope", http.NotFound)
	mux.HandleFunc("GET /agent/explain/{namespace}/{pod}", answer(func(r *http.Request) any {
		for _, p := range status().Pods {
			if p.Namespace == r.PathValue("namespace") && p.Name == r.PathValue("pod") {
				p.Events = nil
				return api.Explanation{Pod: p, Why: []string{"it is \x1b[1mill"}, Next: []api.Step{{What: "container crash starts again"}}, Plan: "wait", EvictionOrder: "number 1 of 3"}
			}
		}
		return nil
	}))
	mux.HandleFunc("GET /agent/images", answer(func(*http.Request) any { return imageList() }))
	mux.HandleFunc("POST /agent/restart/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("pod") == "job-node1" {
			http.Error(w, "the pod can't be restarted: it is ended", http.StatusConflict)
			return
		}
		answer(func(r *http.Request) any {
			return api.Restart{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
		})(w, r)
	})
	mux.HandleFunc("POST /agent/pull", func(w http.ResponseWriter, r *http.Request) {
		switch image := r.URL.Query().Get("image"); image {
		case "built":
			answer(func(*http.Request) any { return api.Image{ID: "sha256:0123"} })(w, r)
		case "secret":
			http.Error(w, "unauthorized", http.StatusInternalServerError)
		default:
			answer(func(*http.Request) any {
				return api.Image{ID: "sha256:0123", Digests: []string{image + "@sha256:4567"}}
			})(w, r)
		}
	})
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s\n", strings.TrimPrefix(r.URL.String(), "/containerLogs/"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// imageList returns images of all kinds.
func imageList() api.ImageList {
	return api.ImageList{Now: now(), Items: []api.Image{
		{ID: "sha256:aaaaaaaaaaaaaaaa", Tags: []string{"registry.example:5000/web:1", "registry.example:5000/web:latest"}, SizeBytes: 120 << 20, Containers: 2, LastUsed: ago(time.Second), Reason: "in use"},
		{ID: "sha256:bbbbbbbbbbbbbbbb", Digests: []string{"registry.example/db@sha256:4567"}, SizeBytes: 1 << 30, LastUsed: ago(72 * time.Hour), Delete: true, Reason: "space"},
		{ID: "sha256:cc", SizeBytes: 500, Reason: "young"},
		{ID: "sha256:dddddddddddddddd", Tags: []string{"registry.k8s.io/pause:3.10"}, SizeBytes: 700 << 10, Pinned: true, Reason: "pinned\x1b[2J"},
	}}
}

func podList(pods []api.Pod) corev1.PodList {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range pods {
		if p.UID != "hook" { // the pod with this UID is being removed
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), Labels: map[string]string{"app": strings.TrimSuffix(p.Name, "-node1"), "tier": p.Namespace},
			}})
		}
	}
	return list
}
