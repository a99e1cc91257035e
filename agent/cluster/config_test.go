package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

func TestConfig_ReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := cluster.New(cluster.Config{})
	require.EqualError(t, err, "cluster: Client is required\ncluster: NodeName is required")

	err = cluster.Config{
		Client: fake.NewClientset(), NodeName: "No",
		Labels:       map[string]string{"a/b/c": "-"},
		Taints:       []corev1.Taint{{}},
		StatusPeriod: -1, ReportPeriod: -1, LeaseDuration: -time.Millisecond,
	}.Validate()
	for _, part := range []string{
		`NodeName "No": `, `Labels["a/b/c"]: `, `Labels["a/b/c"]="-": `, `Taints[0]: key "": `,
		"StatusPeriod is -1ns, want at least 0", "ReportPeriod is -1ns, want at least 0", "LeaseDuration is -1ms, want at least 0",
		"LeaseDuration is -1ms, want whole seconds",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestJoin_CompletesTheConfigOfAnAgent(t *testing.T) {
	t.Parallel()
	c, err := cluster.New(cluster.Config{Client: fake.NewClientset(), NodeName: nodeName})
	require.NoError(t, err)
	sources := make([]agent.Source, 1, 2)
	ac := agent.Config{NodeName: nodeName, Sources: sources}
	require.NoError(t, c.Join(&ac))
	require.Len(t, ac.Sources, 2)
	require.Equal(t, podspec.SourceAPI, ac.Sources[1].Name)
	require.Empty(t, sources[:2][1].Name, "the array of the caller is not modified")
	require.NotNil(t, ac.Statuses)
	require.NotNil(t, ac.Events)
	require.NotNil(t, ac.Cluster.Objects)

	ac.NodeName = "other"
	require.EqualError(t, c.Join(&ac), `cluster: the NodeName of the agent is "other", want "node1"
cluster: Join sets the agent's Statuses, so it must not be set before
cluster: Join sets the agent's Events, so it must not be set before
cluster: Join sets the agent's Cluster, so none of its fields must be set before`)
	require.Len(t, ac.Sources, 2, "a config with problems is not changed")
	require.Error(t, c.Join(&agent.Config{NodeName: nodeName, Statuses: status.SinkFunc(nil)}))
}
