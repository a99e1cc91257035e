package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// TestTypes_JSONFieldNames fails when a field is renamed, because scripts read the fields.
func TestTypes_JSONFieldNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	usage := &api.Usage{Time: at, CPUCores: new(0.5), MemoryBytes: 1, EphemeralBytes: 2, EphemeralInodes: 3}
	const usageJSON = `{"time":"2026-01-02T03:04:05Z","cpuCores":0.5,"memoryBytes":1,"ephemeralBytes":2,"ephemeralInodes":3}`
	for want, value := range map[string]any{
		`{"name":"a","version":"v","started":"2026-01-02T03:04:05Z","adopted":1}`: api.Agent{Name: "a", Version: "v", Started: at, Adopted: 1},
		`{"name":"r","version":"v","endpoint":"e"}`:                               api.Runtime{Name: "r", Version: "v", Endpoint: "e"},
		`{"name":"m","ok":true}`:                                                  api.Manager{Name: "m", OK: true},
		`{"name":"m","ok":false,"message":"down"}`:                                api.Manager{Name: "m", Message: "down"},
		`{"name":"s","available":1,"capacity":2,"time":"2026-01-02T03:04:05Z","thresholds":null}`: api.Signal{
			Name: "s", Available: 1, Capacity: 2, Time: &at,
		},
		`{"name":"s","available":0,"capacity":0,"thresholds":[{"text":"s<1","value":1,"graceSeconds":1.5,"since":"2026-01-02T03:04:05Z"}]}`: api.Signal{
			Name: "s", Thresholds: []api.Threshold{{Text: "s<1", Value: 1, GraceSeconds: 1.5, Since: &at}},
		},
		`{"text":"","value":0,"graceSeconds":0}`: api.Threshold{},
		`{"namespace":"ns","name":"p","uid":"u","phase":"Running","state":"Running","message":"m","ready":1,"containers":null,` +
			`"restarts":2,"ip":"10.0.0.1","started":"2026-01-02T03:04:05Z","usage":` + usageJSON + `}`: api.Pod{
			Namespace: "ns", Name: "p", UID: "u", Phase: corev1.PodRunning, State: "Running", Message: "m", Ready: 1, Restarts: 2,
			IP: "10.0.0.1", Started: &at, Usage: usage,
		},
		`{"name":"c","kind":"main","image":"i","state":"Error","since":"2026-01-02T03:04:05Z","exitCode":1,"ready":true,"restarts":2,"usage":` +
			usageJSON + `,"probes":[{"kind":"liveness","result":"success"}]}`: api.Container{
			Name: "c", Kind: "main", Image: "i", State: "Error", Since: &at, ExitCode: new(int32(1)), Ready: true, Restarts: 2, Usage: usage,
			Probes: []api.Probe{{Kind: "liveness", Result: "success"}},
		},
		`{"kind":"startup","result":"failure","time":"2026-01-02T03:04:05Z","durationMs":1.5,"output":"o"}`: api.Probe{
			Kind: "startup", Result: "failure", Time: &at, DurationMS: 1.5, Output: "o",
		},
		`{"number":1,"time":"2026-01-02T03:04:05Z","type":"Normal","reason":"R","message":"m","kind":"Pod","namespace":"ns","name":"p",` +
			`"fieldPath":"spec.containers{c}","count":2}`: api.Event{
			Number: 1, Time: at, Type: "Normal", Reason: "R", Message: "m", Kind: "Pod", Namespace: "ns", Name: "p",
			FieldPath: "spec.containers{c}", Count: 2,
		},
		`{"at":"2026-01-02T03:04:05Z","what":"w"}`: api.Step{At: &at, What: "w"},
		`{"what":"w"}`: api.Step{What: "w"},
	} {
		data, err := json.Marshal(value)
		require.NoError(t, err)
		require.JSONEq(t, want, string(data))
	}
	fields := func(value any) (names []string) {
		data, err := json.Marshal(value)
		require.NoError(t, err)
		var all map[string]any
		require.NoError(t, json.Unmarshal(data, &all))
		for name := range all {
			names = append(names, name)
		}
		return names
	}
	require.ElementsMatch(t, []string{"now", "agent", "runtime", "node", "managers", "signals", "pods"}, fields(api.Status{}))
	require.Contains(t, fields(api.Status{Problems: []string{"p"}}), "problems")
	require.ElementsMatch(t, []string{"pod", "why", "next", "plan", "evictionOrder"}, fields(api.Explanation{}))
}

func TestExplanationText_CountsRestartsAndContainers(t *testing.T) {
	t.Parallel()
	for want, pod := range map[string]api.Pod{
		"ns/p is Running, 1 of 1 containers ready, 1 restart\n": {
			Phase: "Running", State: "Running", Ready: 1, Restarts: 1, Containers: []api.Container{{Kind: "main"}, {Kind: "init"}},
		},
		"ns/p is Init:0/1 (Pending), 0 of 2 containers ready, 0 restarts\n": {
			Phase: "Pending", State: "Init:0/1", Containers: []api.Container{{Kind: "main"}, {Kind: "sidecar"}, {Kind: "ephemeral"}},
		},
		"ns/p is InvalidManifest\n": {State: "InvalidManifest"},
	} {
		pod.Namespace, pod.Name = "ns", "p"
		require.Equal(t, want, api.ExplanationText(api.Explanation{Pod: pod}))
	}
}
