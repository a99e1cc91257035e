package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestReservationsAreInTheKubeletsSyntax(t *testing.T) {
	t.Parallel()
	list, err := parseReserved("cpu=200m, memory=500Mi,ephemeral-storage=1Gi")
	require.NoError(t, err)
	require.Len(t, list, 3)
	cpu := list[corev1.ResourceCPU]
	require.EqualValues(t, 200, cpu.MilliValue())
	list, err = parseReserved("")
	require.NoError(t, err)
	require.Empty(t, list)
	for text, want := range map[string]string{
		"cpu": "want cpu, memory", "gpu=1": "want cpu, memory", "cpu=": "quantit", "cpu=-1": "negative", "cpu=1,cpu=2": "twice", "=": "want cpu", "pid=5": "want cpu",
	} {
		_, err := parseReserved(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestBadFlagsOfTheServerAndTheShutdownAreNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--tls-cert-file":                         {"--tls-cert-file", "x"},
		"--stop-pods and --shutdown-grace-period": {"--stop-pods", "--shutdown-grace-period", "10s"},
		"--shutdown-grace-period":                 {"--shutdown-grace-period", "10s", "--shutdown-grace-period-critical-pods", "20s"},
		"kube-reserved":                           {"--kube-reserved", "cpu"},
		"that takes a certificate and a token":    {"--listen", "0.0.0.0:0"},
		"no such file":                            {"--token-file", "/nowhere/token"},
	} {
		require.ErrorContains(t, run(t.Context(), append(args, "--node-name", "n"), io.Discard, io.Discard), want, args)
	}
}
