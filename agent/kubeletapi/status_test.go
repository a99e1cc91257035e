package kubeletapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/prober"
)

func statusOf(t *testing.T, cfg kubeletapi.Config) api.Status {
	t.Helper()
	cfg.Clock = testingclock.NewFakeClock(at)
	w := answer(t, cfg, "/agent/status")
	require.Equal(t, http.StatusOK, w.Code)
	var s api.Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

func TestStatus_AgentWithoutData(t *testing.T) {
	t.Parallel()
	w := answer(t, kubeletapi.Config{Clock: testingclock.NewFakeClock(at)}, "/agent/status")
	require.Contains(t, w.Body.String(), `"managers":[],"signals":[],"pods":[]}`, "JSON lists must be empty, not null")
	require.Equal(t, at, statusOf(t, kubeletapi.Config{}).Now)
}

func TestStatus_DescribesAgentNodeAndParts(t *testing.T) {
	t.Parallel()
	info := api.Agent{Name: "me", Version: "v1", Started: at.Add(-time.Hour), Adopted: 3}
	runtime := api.Runtime{Name: "containerd", Version: "v2", Endpoint: "unix:///run/x.sock"}
	node := nodeNamed("node1", corev1.ConditionTrue)
	s := statusOf(t, kubeletapi.Config{
		Agent: &fake{node: node, health: []agent.Check{
			{Name: "runtime", Err: errors.New("no answer"), Notes: []string{"not shown"}},
			{Name: "pods", Notes: []string{"2 pods", "1 waits"}},
		}},
		Checks: []kubeletapi.Check{
			{Name: "manifests", Run: func() error { return nil }, Notes: func() []string { return []string{"3 files"} }},
			{Name: "disk", Run: func() error { return errors.New("full") }},
		},
		Info: func() api.Agent { return info }, Runtime: runtime,
		Problems: func() []kubeletapi.Problem {
			return []kubeletapi.Problem{{File: "a.yaml", Err: errors.New("bad")}, {File: "b.yaml", Err: errors.New("worse")}}
		},
	})
	require.Equal(t, api.Status{
		Now: at, Agent: info, Runtime: runtime, Node: *node,
		Managers: []api.Manager{
			{Name: "runtime", Message: "no answer"},
			{Name: "pods", OK: true, Message: "2 pods; 1 waits"},
			{Name: "manifests", OK: true, Message: "3 files"},
			{Name: "disk", Message: "full"},
		},
		Signals: []api.Signal{}, Pods: []api.Pod{}, Problems: []string{"a.yaml: bad", "b.yaml: worse"},
	}, s)
}

func TestStatus_DescribesPodsWithUsageEventsAndProbes(t *testing.T) {
	t.Parallel()
	log := eventlog.New(eventlog.Config{Clock: testingclock.NewFakePassiveClock(at)})
	for _, reason := range []string{"1", "2", "3", "4", "5", "6"} {
		log.Add(api.Event{Kind: "Pod", Namespace: "ns", Name: "runs", Reason: reason})
	}
	log.Add(api.Event{Kind: "Node", Name: "runs"})
	s := statusOf(t, kubeletapi.Config{
		Agent: &fake{
			pods: []agent.Pod{
				undefined(podOf("ends", agent.Admitted)), podOf("killed", agent.Ending), podOf("runs", agent.Admitted, "c", "d"), undefined(ended(podOf("was", agent.Ended))),
			},
			probes: []agent.Probe{
				{Container: "c", Kind: prober.Readiness, Result: prober.Failure, Runs: []prober.Record{{At: at, Duration: 1500 * time.Microsecond, Output: "503"}}},
				{Container: "x", Kind: prober.Readiness},
			},
			summary: func(context.Context) (*statsapi.Summary, error) {
				return &statsapi.Summary{Pods: []statsapi.PodStats{
					{PodRef: statsapi.PodReference{UID: "ends"}},
					{
						PodRef: statsapi.PodReference{UID: "runs"}, CPU: cpu(250_000_000), Memory: memory(3 << 20),
						EphemeralStorage: &statsapi.FsStats{UsedBytes: new(uint64(9)), InodesUsed: new(uint64(2))},
						Containers: []statsapi.ContainerStats{
							{Name: "c", Memory: memory(1 << 20), Rootfs: &statsapi.FsStats{UsedBytes: new(uint64(7))}}, {Name: "d"},
						},
					},
				}}, errors.New("some pods are missing")
			},
		},
		Events: log,
	})
	var names []string
	for _, p := range s.Pods {
		names = append(names, p.Name+" "+p.State)
	}
	require.Equal(t, []string{"ends Terminating", "killed Terminating", "runs Pending", "was Completed"}, names)
	require.Nil(t, s.Pods[0].Usage)
	runs := s.Pods[2]
	require.Equal(t, &api.Usage{Time: at, CPUCores: new(0.25), MemoryBytes: 3 << 20, EphemeralBytes: 9, EphemeralInodes: 2}, runs.Usage)
	require.Equal(t, &api.Usage{Time: at, MemoryBytes: 1 << 20, EphemeralBytes: 7}, runs.Containers[0].Usage)
	require.Nil(t, runs.Containers[1].Usage)
	require.Equal(t, []api.Probe{{Kind: "readiness", Result: "failure", Time: &at, DurationMS: 1.5, Output: "503"}}, runs.Containers[0].Probes)
	require.Empty(t, runs.Containers[1].Probes)
	require.Len(t, runs.Events, 5)
	require.Equal(t, "6", runs.Events[0].Reason)
}

// ended returns the pod with the phase Succeeded.
func ended(p agent.Pod) agent.Pod {
	p.Spec.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
	}}}
	return p
}

func cpu(nanoCores uint64) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: metav1.NewTime(at), UsageNanoCores: &nanoCores}
}

func memory(workingSet uint64) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{Time: metav1.NewTime(at), WorkingSetBytes: &workingSet}
}

func TestStatus_HasTheSignalsOfEviction(t *testing.T) {
	t.Parallel()
	measured, since := at.Add(-time.Second), at.Add(-time.Minute)
	report := func(signal eviction.Signal, value eviction.Value, state eviction.ThresholdState) eviction.Report {
		return eviction.Report{Threshold: eviction.Threshold{Signal: signal, Value: value}, State: state, Quantity: value.Of(1000)}
	}
	percent, bytes := eviction.Value{Fraction: 0.1}, eviction.Value{Quantity: 50}
	soft := report(eviction.NodeFSAvailable, percent, eviction.Met)
	soft.Threshold.GracePeriod, soft.Since = 90*time.Second, since
	soft.Observation = eviction.Observation{Available: 70, Capacity: 1000, Time: measured}
	hard := report(eviction.NodeFSAvailable, bytes, eviction.Fine)
	hard.Observation = soft.Observation
	now := report(eviction.MemoryAvailable, bytes, eviction.Fine)
	now.Observation = eviction.Observation{Available: 500, Capacity: 1000}
	s := statusOf(t, kubeletapi.Config{Agent: &fake{plan: func(context.Context) (agent.Plan, error) {
		return agent.Plan{Eviction: eviction.Decision{At: at, Thresholds: []eviction.Report{
			report(eviction.PIDAvailable, bytes, eviction.Unknown), soft, now, hard,
		}}}, errors.New("processes could not be counted")
	}}})
	require.Equal(t, []api.Signal{
		{Name: "memory.available", Available: 500, Capacity: 1000, Time: &at, Thresholds: []api.Threshold{{Text: "memory.available<50", Value: 50}}},
		{Name: "nodefs.available", Available: 70, Capacity: 1000, Time: &measured, Thresholds: []api.Threshold{
			{Text: "nodefs.available<10%", Value: 100, GraceSeconds: 90, Since: &since}, {Text: "nodefs.available<50", Value: 50},
		}},
		{Name: "pid.available", Thresholds: []api.Threshold{{Text: "pid.available<50", Value: 50}}},
	}, s.Signals)
}

func TestStatus_DoesNotWaitForARuntimeThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			pods: []agent.Pod{podOf("p", agent.Admitted, "c")},
			summary: func(ctx context.Context) (*statsapi.Summary, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			plan: func(ctx context.Context) (agent.Plan, error) {
				<-ctx.Done()
				return agent.Plan{}, ctx.Err()
			},
		}
		began := time.Now()
		s := statusOf(t, kubeletapi.Config{Agent: f})
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.Len(t, s.Pods, 1)
		require.Nil(t, s.Pods[0].Usage)
		require.Empty(t, s.Signals)
	})
}
