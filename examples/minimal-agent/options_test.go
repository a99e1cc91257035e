package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// configFile writes a configuration and returns its name.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: "+kubeletconfig.APIVersion+"\nkind: "+kubeletconfig.Kind+"\n"+text), 0o600))
	return file
}

func TestFlagsThatAreGivenWinOverTheFile(t *testing.T) {
	t.Parallel()
	file := configFile(t, `
maxPods: 20
port: 1234
clusterDNS: [10.96.0.10]
imageGCHighThresholdPercent: 70
imageGCLowThresholdPercent: 60
cgroupRoot: /node
evictionHard: {memory.available: 1Gi}
registerNode: true
`)
	// Before and behind: the place of --config does not matter.
	o, err := parseOptions([]string{"--max-pods", "30", "--config", file, "--image-gc-low-threshold", "50", "--cgroup-parent="}, io.Discard)
	require.NoError(t, err)
	require.EqualValues(t, 30, o.MaxPods)
	require.Equal(t, "127.0.0.1:1234", o.listen)
	require.Equal(t, []string{"10.96.0.10"}, o.ClusterDNS)
	require.EqualValues(t, 70, o.ImageGCHighThresholdPercent)
	require.EqualValues(t, 50, o.ImageGCLowThresholdPercent)
	require.Empty(t, o.cgroupParent())
	require.Len(t, o.notes, 2)
	require.Equal(t, "minimal-agent", o.agentName)
	require.Equal(t, -1, o.deadAll)

	o, err = parseOptions([]string{"--config=" + file, "--listen", ":0", "--eviction-hard", ""}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "[::]:0", o.listen)
	require.Equal(t, "/node", o.cgroupParent())
	require.Empty(t, o.policies.Eviction.Thresholds)
}

func TestProblemsOfFlagsAndFileHaveTheirNames(t *testing.T) {
	t.Parallel()
	_, err := parseOptions([]string{"--config", configFile(t, "maxPod: 3\nport: -1\n")}, io.Discard)
	require.ErrorContains(t, err, "kubelet.yaml: line 3: maxPod: unknown field")
	require.ErrorContains(t, err, "kubelet.yaml: line 4: port: -1: want 0 to 65535")
	_, err = parseOptions([]string{"--config", configFile(t, "cgroupDriver: systemd\n"), "--cgroup-parent", "/"}, io.Discard)
	require.ErrorContains(t, err, "cgroupDriver: systemd: cgroups of pods need cgroupfs")
	_, err = parseOptions([]string{"--config", "/not/there"}, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestEachFlagRefusesNonsense(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"--manifests":                             nil, // a folder may come later
		"--root-dir":                              nil, // see TestStartupErrorsNameWhatIsWrong
		"--token-file":                            nil, // and TestBadFlagsOfTheServerAndTheShutdownAreNamed
		"--cluster-domain":                        {"a b", "-x", "Cluster.Local", "x\nnameserver 6.6.6.6"},
		"--cri-endpoint":                          {"", "tcp://x", "unix://x"},
		"--manifest-url":                          {"ftp://x", "http://", "x", ":"},
		"--listen":                                {"", "x", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "example.com:80"},
		"--tls-cert-file":                         {"/x"},
		"--tls-private-key-file":                  {"/x"},
		"--enable-pprof=x":                        {""},
		"--node-name":                             {"Bad_Name", "a..b"},
		"--agent-name":                            {"", "-x", "a b"},
		"--stop-pods=maybe":                       {""},
		"--shutdown-grace-period":                 {"x", "-1s", "10ms", "5"},
		"--shutdown-grace-period-critical-pods":   {"x", "-1s", "10s"},
		"--take-over=2":                           {""},
		"--cluster-dns":                           {"x", "10.0.0.1,x", "10.0.0.1:53"},
		"--cgroup-parent":                         {"x", "/x/", "/../x"},
		"--max-pods":                              {"", "x", "0", "-1", "1.5", "9999999999"},
		"--eviction-hard":                         {"x", "memory.available<x", "memory.available<-1", "memory.available<1,memory.available<2"},
		"--eviction-soft":                         {"x", "memory.available<1Gi"},
		"--eviction-soft-grace-period":            {"x", "memory.available=x", "memory.available=1m"},
		"--eviction-minimum-reclaim":              {"x", "memory.available=x", "memory.available=-1"},
		"--eviction-pressure-transition-period":   {"", "x", "-1s", "1"},
		"--eviction-max-pod-grace-period":         {"", "x"},
		"--image-gc-high-threshold":               {"", "x", "-1", "101"},
		"--image-gc-low-threshold":                {"", "x", "-1", "101", "85"},
		"--minimum-image-ttl-duration":            {"", "x", "-1s"},
		"--maximum-dead-containers":               {"", "x"},
		"--maximum-dead-containers-per-container": {"", "x"},
		"--container-log-max-size":                {"", "x", "0"},
		"--container-log-max-files":               {"", "x", "1", "-1"},
		"--kube-reserved":                         {"x", "cpu=", "gpu=1", "cpu=-1", "cpu=1,cpu=2", "pid=5"},
		"--system-reserved":                       {"x", "cpu=x"},
		"--config":                                {"/not/there", "/"},
	}
	var tried []string
	for flag, values := range cases {
		name, _, _ := strings.Cut(flag, "=")
		tried = append(tried, name)
		for _, value := range values {
			args := []string{"--node-name", "n", flag, value}
			if value == "" && len(values) == 1 {
				args = args[:3]
			}
			_, err := parseOptions(args, io.Discard)
			require.Error(t, err, args)
			require.Contains(t, err.Error(), strings.TrimPrefix(name, "--"), "%q: which flag it is", args)
		}
	}
	require.ElementsMatch(t, runFlags(), tried, "each flag has a case")
}

func TestFolderIsReadAgainAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	o := options{Settings: kubeletconfig.Default()}
	require.Zero(t, o.folderPeriod(), "the source's own")
	o.FileCheckFrequency.Duration = time.Second
	require.Equal(t, time.Second, o.folderPeriod())
}

func TestShutdownIsAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"--shutdown-grace-period", "30s", "--shutdown-grace-period-critical-pods", "10s"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second}, o.policies.Shutdown)

	file := configFile(t, "shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 10}]\n")
	o, err = parseOptions([]string{"--config", file}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []podworker.ShutdownGracePeriodByPodPriority{{Priority: 5, GracePeriod: 10 * time.Second}}, o.policies.Shutdown.ShutdownGracePeriodByPodPriority)
	require.NoError(t, o.policies.Shutdown.Validate())

	_, err = parseOptions([]string{"--config", file, "--stop-pods"}, io.Discard)
	require.ErrorContains(t, err, "--stop-pods and --shutdown-grace-period")
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

func TestLogsInAFolderOfOthersTakeTakeOver(t *testing.T) {
	t.Parallel()
	file := configFile(t, "podLogsDir: /var/log/pods\n")
	_, err := parseOptions([]string{"--config", file}, io.Discard)
	require.ErrorContains(t, err, "podLogsDir")
	o, err := parseOptions([]string{"--config", file, "--take-over"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "/var/log/pods", (&agent{opts: o}).logRoot())
}
