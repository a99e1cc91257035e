package main

import (
	"bytes"
	"flag"
	"io"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestParse_Flags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{
		"--kubeconfig", "/k", "--node-ip", "10.0.0.1, fd00::1", "--node-labels", "a=b,c=", "--register-with-taints", "x=y:NoSchedule,z:NoExecute",
		"--hostname-override", " Node-A ", "--pod-manifest-path", "manifests", "--root-dir", "/r", "--v", "4",
	}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "node-a", o.nodeName)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, o.nodeIPs)
	require.Equal(t, map[string]string{"a": "b", "c": ""}, o.nodeLabels)
	require.Equal(t, []corev1.Taint{{Key: "x", Value: "y", Effect: corev1.TaintEffectNoSchedule}, {Key: "z", Effect: corev1.TaintEffectNoExecute}}, o.RegisterWithTaints)
	require.Equal(t, "/r/pki", o.certDir)
	require.True(t, filepath.IsAbs(o.StaticPodPath))
	require.Equal(t, "unix:///run/containerd/containerd.sock", o.ContainerRuntimeEndpoint)
	require.EqualValues(t, 10250, o.Port)
	require.Equal(t, 4, o.verbosity)
}

func TestParse_ReportsProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--kubeconfig is required", nil},
		{`unexpected argument "x"`, []string{"x"}},
		{"--help lists the flags", []string{"--unknown"}},
		{"one address of each family", []string{"--node-ip", "10.0.0.1,10.0.0.2"}},
		{"one address of each family", []string{"--node-ip", "10.0.0.1,::1,10.0.0.2"}},
		{"not the address of a machine", []string{"--node-ip", "0.0.0.0"}},
		{"unable to parse IP", []string{"--node-ip", "x"}},
		{"want NAME=VALUE", []string{"--node-labels", "a"}},
		{"want KEY=VALUE:EFFECT", []string{"--register-with-taints", "a=b"}},
		{`effect "Sometimes"`, []string{"--kubeconfig", "k", "--register-with-taints", "a=b:Sometimes"}},
		{"want unix:///PATH", []string{"--container-runtime-endpoint", "tcp://x"}},
		{"--hostname-override", []string{"--hostname-override", "a_b"}},
		{"no such file", []string{"--config", "/none"}},
	} {
		_, err := parse(c.args, io.Discard)
		require.ErrorContains(t, err, c.want, "%q", c.args)
	}
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, usage.String(), "-bootstrap-kubeconfig")
}

func TestVersion_IsBuildMetadata(t *testing.T) {
	t.Parallel()
	require.Equal(t, "v0.1.0.rc.1.dirty", buildVersion("v0.1.0-rc.1+dirty"))
	require.Contains(t, version(), "v1.36.0+kubeparts")
}
