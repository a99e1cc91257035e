package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/cluster"
)

func TestParseLabels(t *testing.T) {
	t.Parallel()
	labels, err := cluster.ParseLabels("a=b, c=")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b", "c": ""}, labels)
	_, err = cluster.ParseLabels("a=b,c")
	require.EqualError(t, err, `"c": want NAME=VALUE`)
}

func TestParseTaints(t *testing.T) {
	t.Parallel()
	taints, err := cluster.ParseTaints("x=y:NoSchedule, z:NoExecute")
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "x", Value: "y", Effect: corev1.TaintEffectNoSchedule}, {Key: "z", Effect: corev1.TaintEffectNoExecute}}, taints)
	_, err = cluster.ParseTaints("x=y")
	require.EqualError(t, err, `"x=y": want KEY=VALUE:EFFECT`)
}
