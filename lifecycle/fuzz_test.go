package lifecycle_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FuzzPods passes pods and nodes that no API server has validated to all
// decisions about them: nothing panics or modifies them, and no amount is
// negative.
func FuzzPods(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"pod":{"spec":{"containers":[{"resources":{"requests":{"cpu":"9223372036854775807","memory":"-1"}}},{"resources":{"limits":{"a.com/b":"1e30"}}}]}}}`,
		`{"pod":{"spec":{"resources":{"limits":{"cpu":"1000000000000000000001m"}},"overhead":{"cpu":"1"},"initContainers":[{"name":"a","restartPolicy":"Always"}]}}}`,
		`{"pod":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"n","operator":"Gt","values":["x"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":[]}]}]}}}}}}`,
		`{"pod":{"metadata":{"annotations":{"kubernetes.io/config.source":""}},"spec":{"tolerations":[{"operator":"Lt","value":"-9"}],"containers":[{"ports":[{"hostPort":-1},{"hostPort":70000}]}]},"status":{"extendedResourceClaimStatus":{"requestMappings":[{}]}}},"node":{"spec":{"taints":[{"effect":"NoExecute","value":"007"}]},"status":{"allocatable":{"pods":"-3","cpu":"-1"}}}}`,
		`{"pod":{"spec":{"terminationGracePeriodSeconds":-9223372036854775808,"activeDeadlineSeconds":9223372036854775807},"status":{"startTime":"2026-01-01T00:00:00Z","qosClass":"odd"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in struct {
			Pod  corev1.Pod  `json:"pod"`
			Node corev1.Node `json:"node"`
		}
		if json.Unmarshal(data, &in) != nil {
			return
		}
		pod, node := &in.Pod, &in.Node
		before, err := json.Marshal(in)
		if err != nil {
			return
		}
		others := []*corev1.Pod{nil, pod, pod.DeepCopy(), {}}
		failures := lifecycle.FitsAll(pod, others, node)
		for _, m := range failures {
			require.NotEmpty(t, m.Reason)
			require.NotEmpty(t, m.Message)
			require.False(t, m.Requested < 0 || m.Used < 0 || m.Missing() < 0, "%+v", m)
			require.Equal(t, m.Resource != "", m.Missing() > 0, "%+v", m)
		}
		if needs, ok := lifecycle.Needs(failures); ok {
			critical := &corev1.Pod{Spec: corev1.PodSpec{Priority: new(podspec.SystemCriticalPriority)}}
			_, _ = lifecycle.PlanPreemption(critical, others, needs) // an error means that there are no victims
		}
		lifecycle.FitsOS(pod, "linux")
		lifecycle.FitsGroupsPolicy(pod, node)
		podspec.QOSClass(pod)
		podspec.Limits(pod)
		lifecycle.ActiveDeadline{}.ShouldEvict(pod)
		require.GreaterOrEqual(t, lifecycle.KillGrace(pod, nil), lifecycle.MinimumStopGrace)
		var states []lifecycle.ContainerState
		for c := range podspec.Containers(&pod.Spec) {
			states = append(states, lifecycle.ContainerState{Name: c.Name, Running: true})
		}
		lifecycle.PlanTermination(pod, states, time.Second)
		after, err := json.Marshal(in)
		require.NoError(t, err)
		require.JSONEq(t, string(before), string(after))
	})
}
