package pleg

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

func TestReopenAfter(t *testing.T) {
	for _, test := range []struct {
		failures    int
		most, least time.Duration
	}{
		{0, 100 * time.Millisecond, 50 * time.Millisecond},
		{1, 200 * time.Millisecond, 100 * time.Millisecond},
		{8, 25600 * time.Millisecond, 12800 * time.Millisecond},
		{9, 30 * time.Second, 15 * time.Second},
		{1 << 40, 30 * time.Second, 15 * time.Second},
	} {
		require.Equal(t, test.most, reopenAfter(test.failures, 0))
		require.Equal(t, test.least, reopenAfter(test.failures, 1))
	}
}

func TestPodOf(t *testing.T) {
	labels := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	mine := labels(crilabels.Agent, "me")
	for name, test := range map[string]struct {
		event    *runtimeapi.ContainerEventResponse
		selector map[string]string
		uid      types.UID
		ours     bool
	}{
		"nothing":           {nil, nil, "", true},
		"an id only":        {&runtimeapi.ContainerEventResponse{ContainerId: "1"}, mine, "", true},
		"the sandbox label": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Labels: labels(crilabels.PodUID, "a")}}, nil, "a", true},
		"the sandbox metadata": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "a"},
		}}, nil, "a", true},
		"an empty sandbox": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{}}, nil, "", true},
		"a container label": {&runtimeapi.ContainerEventResponse{ContainersStatuses: []*runtimeapi.ContainerStatus{
			nil, {}, {Labels: labels(crilabels.PodUID, "a")},
		}}, nil, "a", true},
		"another agent's": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Labels: labels(crilabels.PodUID, "a", crilabels.Agent, "you"),
		}}, mine, "", false},
		"ours": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Labels: labels(crilabels.PodUID, "a", crilabels.Agent, "me"),
		}}, mine, "a", true},
	} {
		uid, ours := podOf(test.event, test.selector)
		require.Equal(t, test.uid, uid, name)
		require.Equal(t, test.ours, ours, name)
	}
}

func TestMerge(t *testing.T) {
	started := Event{PodUID: "a", Type: ContainerStarted, ContainerID: "1"}
	require.Equal(t, started, merge(started, started))
	require.Equal(t, Event{PodUID: "a", Type: ContainerStarted}, merge(started, Event{PodUID: "a", Type: ContainerStarted, ContainerID: "2"}))
	require.Equal(t, Event{PodUID: "a", Type: PodSync}, merge(started, Event{PodUID: "a", Type: ContainerDied, ContainerID: "1"}))
}
