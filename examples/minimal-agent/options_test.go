package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/config"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// configFile writes a configuration and returns its name.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: "+config.APIVersion+"\nkind: "+config.Kind+"\n"+text), 0o600))
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
	require.Empty(t, o.thresholds)
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
	for flag, values := range map[string][]string{
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
	} {
		for _, value := range values {
			args := []string{"--node-name", "n", flag, value}
			if value == "" && len(values) == 1 {
				args = args[:3]
			}
			_, err := parseOptions(args, io.Discard)
			require.Error(t, err, args)
		}
	}
}

func TestWhatSettingsMean(t *testing.T) {
	t.Parallel()
	o := options{Settings: config.Default()}
	require.Equal(t, 1, o.parallelPulls())
	o.SerializeImagePulls = false
	require.Zero(t, o.parallelPulls(), "no limit")
	o.MaxParallelImagePulls = new(int32(4))
	require.Equal(t, 4, o.parallelPulls())

	require.EqualValues(t, 110, o.podLimit())
	o.MaxPods, o.PodsPerCore = 1<<30, 1
	require.Positive(t, o.podLimit())
	require.Less(t, o.podLimit(), int64(1<<20))

	require.Zero(t, o.folderPeriod(), "the source's own")
	o.FileCheckFrequency.Duration = time.Second
	require.Equal(t, time.Second, o.folderPeriod())

	require.Zero(t, o.restarts(), "the kubelet's")
	o.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 3 * time.Second}
	require.Equal(t, lifecycle.BackoffConfig{Initial: 3 * time.Second, Max: 3 * time.Second}, o.restarts())
	o.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = time.Minute
	require.Equal(t, lifecycle.BackoffConfig{Initial: 10 * time.Second, Max: time.Minute}, o.restarts())

	require.Empty(t, o.cgroupParent())
	o.CgroupsPerQOS = true
	require.Equal(t, "/", o.cgroupParent())

	o.SystemReserved = map[string]string{"cpu": "500m", "memory": "100Gi"}
	o.KubeReserved = map[string]string{"cpu": "250m", "ephemeral-storage": "1Gi"}
	require.Equal(t, []corev1.ResourceList{
		{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("100Gi")},
		{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
	}, o.reserved())
}

func TestShutdownIsAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"--shutdown-grace-period", "30s", "--shutdown-grace-period-critical-pods", "10s"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second}, o.shutdown)

	file := configFile(t, "shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 10}]\n")
	o, err = parseOptions([]string{"--config", file}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []podworker.ShutdownGracePeriodByPodPriority{{Priority: 5, GracePeriod: 10 * time.Second}}, o.shutdown.ShutdownGracePeriodByPodPriority)
	require.NoError(t, o.shutdown.Validate())

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
