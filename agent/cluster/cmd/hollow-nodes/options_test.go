package main

import (
	"bytes"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestParse_Flags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{
		"--kubeconfig", "/k", "--nodes=20", "--name-prefix", "n", "--cpu", "500m", "--memory=1Gi", "--pods", "30",
		"--node-labels", "a=b, c=", "--register-with-taints", "x=y:NoSchedule,z:NoExecute", "--v", "4",
	}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 20, o.nodes)
	require.Equal(t, "n19", o.nodeName(19))
	require.Equal(t, "500m", o.cpu.String())
	require.Equal(t, "1Gi", o.memory.String())
	require.Equal(t, 30, o.policies.MaxPods)
	require.Equal(t, map[string]string{"a": "b", "c": ""}, o.labels)
	require.Equal(t, []corev1.Taint{{Key: "x", Value: "y", Effect: corev1.TaintEffectNoSchedule}, {Key: "z", Effect: corev1.TaintEffectNoExecute}}, o.taints)
	require.Equal(t, slog.LevelDebug, o.logLevel())
}

func TestParse_Defaults(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--kubeconfig", "/k"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 1, o.nodes)
	require.Equal(t, "hollow-0", o.nodeName(0))
	require.Equal(t, "4", o.cpu.String())
	require.Equal(t, "8Gi", o.memory.String())
	require.Equal(t, 110, o.policies.MaxPods)
	require.Equal(t, slog.LevelWarn, o.logLevel())
	require.NotEmpty(t, o.policies.Eviction.Thresholds, "the kubelet's thresholds")
}

func TestParse_Verbosity(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--kubeconfig", "/k", "--v=2"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, slog.LevelInfo, o.logLevel())
}

func TestParse_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := parse([]string{
		"--nodes", "0", "--name-prefix", "Hollow_", "--cpu", "many", "--memory", "-1", "--pods", "1001",
		"--node-labels", "a", "--register-with-taints", "a=b", "--v", "x", "more",
	}, io.Discard)
	require.Error(t, err)
	problems := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		`--nodes "0": want a number from 1 to 16384`,
		`--cpu "many": quantities must match`,
		`--memory "-1": want more than 0`,
		`--pods "1001": want a number from 1 to 1000`,
		`--node-labels "a": "a": want NAME=VALUE`,
		`--register-with-taints "a=b": "a=b": want KEY=VALUE:EFFECT`,
		`--v "x": `,
		`unexpected argument "more"`,
		`--kubeconfig is required`,
		`NodeName "Hollow_0": `,
	} {
		require.Contains(t, problems[i], want)
	}
	require.Len(t, problems, 10, "%v", problems)

	_, err = parse([]string{"--nodes", "x", "--node-labels", "a b=c", "--register-with-taints", "a=b:Sometimes"}, io.Discard)
	require.ErrorContains(t, err, `--nodes "x"`)
	require.ErrorContains(t, err, `Labels["a b"]`)
	require.ErrorContains(t, err, `effect "Sometimes"`)
	_, err = parse([]string{"--nodes", "x", "--unknown"}, io.Discard)
	require.ErrorContains(t, err, "--help lists the flags")
	require.ErrorContains(t, err, `--nodes "x"`)
}

func TestParse_Help(t *testing.T) {
	t.Parallel()
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, usage.String(), "-register-with-taints")
}

func TestAddresses_DoNotOverlap(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10.0.0.0/22", podNetwork(0).String())
	require.Equal(t, "10.0.4.0/22", podNetwork(1).String())
	require.Equal(t, "10.255.252.0/22", podNetwork(maxNodes-1).String())
	require.Equal(t, "198.18.0.1", address(0).String())
	require.Equal(t, "198.18.64.0", address(maxNodes-1).String())
}
