package settings_test

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// configFile writes a configuration and returns its name.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: "+kubeletconfig.APIVersion+"\nkind: "+kubeletconfig.Kind+"\n"+text), 0o600))
	return file
}

func TestParse_FlagsOverrideTheFile(t *testing.T) {
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
	// The position of --config among the flags does not matter.
	o, err := settings.Parse([]string{"--max-pods", "30", "--config", file, "--image-gc-low-threshold", "50", "--cgroup-parent="}, io.Discard)
	require.NoError(t, err)
	require.EqualValues(t, 30, o.MaxPods)
	require.Equal(t, "127.0.0.1:1234", o.Listen)
	require.Equal(t, []string{"10.96.0.10"}, o.ClusterDNS)
	require.EqualValues(t, 70, o.ImageGCHighThresholdPercent)
	require.EqualValues(t, 50, o.ImageGCLowThresholdPercent)
	require.Nil(t, o.Policy.Cgroups)
	require.Len(t, o.Notes, 2)
	require.Equal(t, "minimal-agent", o.AgentName)
	require.Equal(t, -1, o.DeadAll)

	o, err = settings.Parse([]string{"--config=" + file, "--listen", ":0", "--eviction-hard", ""}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "[::]:0", o.Listen)
	require.Equal(t, "/node", o.Policy.Cgroups.Parent)
	require.Empty(t, o.Policy.Eviction.Thresholds)
}

func TestParse_ErrorsNameTheFlagOrField(t *testing.T) {
	t.Parallel()
	_, err := settings.Parse([]string{"--config", configFile(t, "maxPod: 3\nport: -1\n")}, io.Discard)
	require.ErrorContains(t, err, "kubelet.yaml: line 3: maxPod: unknown field")
	require.ErrorContains(t, err, "kubelet.yaml: line 4: port: -1: want 0 to 65535")
	_, err = settings.Parse([]string{"--config", configFile(t, "cgroupDriver: systemd\n"), "--cgroup-parent", "/"}, io.Discard)
	require.ErrorContains(t, err, "cgroupDriver: systemd: pod cgroups require cgroupfs")
	_, err = settings.Parse([]string{"--config", "/not/there"}, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestParse_EachFlagRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"--manifests":                             nil, // the folder may be created later
		"--root-dir":                              nil, // see TestStart_ErrorsNameTheirCause
		"--token-file":                            nil, // and TestParse_ErrorsNameFlagsOfServerAndShutdown
		"--cluster-domain":                        {"a b", "-x", "Cluster.Local", "x\nnameserver 6.6.6.6"},
		"--cri-endpoint":                          {"", "tcp://x", "unix://x"},
		"--manifest-url":                          {"ftp://x", "http://", "x", ":"},
		"--listen":                                {"", "x", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "example.com:80"},
		"--tls-cert-file":                         {"/x"},
		"--tls-private-key-file":                  {"/x"},
		"--tls-min-version":                       {"x", "VersionTLS12"},
		"--tls-cipher-suites":                     {"", "x", "TLS_AES_128_GCM_SHA256"},
		"--client-ca-file":                        {"/x"},
		"--anonymous-auth":                        {""},
		"--healthz-bind-address":                  {"", "x", "localhost"},
		"--healthz-port":                          {"", "x", "-1", "65536"},
		"--read-only-port":                        {"", "x", "-1", "65536"},
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
			_, err := settings.Parse(args, io.Discard)
			require.Error(t, err, args)
			require.Contains(t, err.Error(), strings.TrimPrefix(name, "--"), "%q: the error must name the flag", args)
		}
	}
	require.ElementsMatch(t, settings.Flags(), tried, "each flag must have a case")
}

func TestFolderPeriod(t *testing.T) {
	t.Parallel()
	o := settings.Settings{Settings: kubeletconfig.Default()}
	require.Zero(t, o.FolderPeriod(), "the source's own default must apply")
	o.FileCheckFrequency.Duration = time.Second
	require.Equal(t, time.Second, o.FolderPeriod())
}

func TestParse_Shutdown(t *testing.T) {
	t.Parallel()
	o, err := settings.Parse([]string{"--shutdown-grace-period", "30s", "--shutdown-grace-period-critical-pods", "10s"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, podworker.ShutdownConfig{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second}, o.Policy.Shutdown)

	file := configFile(t, "shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 10}]\n")
	o, err = settings.Parse([]string{"--config", file}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []podworker.ShutdownGracePeriodByPodPriority{{Priority: 5, GracePeriod: 10 * time.Second}}, o.Policy.Shutdown.ShutdownGracePeriodByPodPriority)
	require.NoError(t, o.Policy.Shutdown.Validate())

	_, err = settings.Parse([]string{"--config", file, "--stop-pods"}, io.Discard)
	require.ErrorContains(t, err, "--stop-pods and --shutdown-grace-period")
}

func TestParse_ErrorsNameFlagsOfServerAndShutdown(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--tls-cert-file":                         {"--tls-cert-file", "x"},
		"--stop-pods and --shutdown-grace-period": {"--stop-pods", "--shutdown-grace-period", "10s"},
		"--shutdown-grace-period":                 {"--shutdown-grace-period", "10s", "--shutdown-grace-period-critical-pods", "20s"},
		"kube-reserved":                           {"--kube-reserved", "cpu"},
	} {
		_, err := settings.Parse(append(args, "--node-name", "n"), io.Discard)
		require.ErrorContains(t, err, want, args)
	}
}

func TestParse_Access(t *testing.T) {
	t.Parallel()
	o, err := settings.Parse([]string{"--node-name", "n"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, kubeletapi.Access{}, o.Access)
	require.Empty(t, o.HealthListen)
	require.Empty(t, o.ReadOnlyListen)

	file := configFile(t, `
authentication: {x509: {clientCAFile: ca.crt}, anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
tlsCertFile: /pki/tls.crt
tlsPrivateKeyFile: /pki/tls.key
tlsMinVersion: VersionTLS12
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
tlsCurvePreferences: [29]
address: 192.0.2.1
healthzPort: 10248
readOnlyPort: 10255
`)
	o, err = settings.Parse([]string{"--config", file, "--token-file", "/token"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, kubeletapi.Access{
		CertFile: "/pki/tls.crt", KeyFile: "/pki/tls.key", ClientCAFile: filepath.Join(filepath.Dir(file), "ca.crt"), TokenFile: "/token", Anonymous: true,
		MinTLSVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, CurvePreferences: []tls.CurveID{tls.X25519},
	}, o.Access)
	require.Equal(t, "127.0.0.1:10248", o.HealthListen)
	require.Equal(t, "192.0.2.1:10255", o.ReadOnlyListen)

	o, err = settings.Parse([]string{
		"--config", file, "--anonymous-auth=false", "--client-ca-file", "/other.crt", "--tls-min-version", "VersionTLS13", "--tls-cipher-suites", "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
		"--healthz-bind-address", "::1", "--healthz-port", "1", "--read-only-port", "0",
	}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "/other.crt", o.Access.ClientCAFile)
	require.False(t, o.Access.Anonymous)
	require.EqualValues(t, tls.VersionTLS13, o.Access.MinTLSVersion)
	require.Equal(t, []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384}, o.Access.CipherSuites)
	require.Equal(t, "[::1]:1", o.HealthListen)
	require.Empty(t, o.ReadOnlyListen)
}

func TestParse_RefusesAccessThatNeedsAnAPIServerOrTLS(t *testing.T) {
	t.Parallel()
	file := configFile(t, `
authentication: {webhook: {enabled: true}, x509: {clientCAFile: ca.crt}}
authorization: {mode: Webhook}
tlsMinVersion: VersionTLS12
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
tlsCurvePreferences: [29]
`)
	_, err := settings.Parse([]string{"--config", file}, io.Discard)
	for _, want := range []string{
		"authentication.webhook.enabled: true requires an API server", "authorization.mode: Webhook requires an API server", "(authentication.x509.clientCAFile) requires --tls-cert-file",
		"(tlsMinVersion) requires --tls-cert-file", "(tlsCipherSuites) requires --tls-cert-file", "tlsCurvePreferences requires --tls-cert-file",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = settings.Parse([]string{"--anonymous-auth"}, io.Discard)
	require.ErrorContains(t, err, "--anonymous-auth (authentication.anonymous.enabled) requires --token-file or --client-ca-file")
}

func TestParse_PodLogsDirRequiresTakeOver(t *testing.T) {
	t.Parallel()
	file := configFile(t, "podLogsDir: /var/log/pods\n")
	_, err := settings.Parse([]string{"--config", file}, io.Discard)
	require.ErrorContains(t, err, "podLogsDir")
	o, err := settings.Parse([]string{"--config", file, "--take-over"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "/var/log/pods", o.PodLogsDir)
}

func TestParse_EvictionThresholds(t *testing.T) {
	t.Parallel()
	o, err := settings.Parse([]string{"--node-name", "n"}, io.Discard)
	require.NoError(t, err)
	var texts []string
	for _, th := range o.Policy.Eviction.Thresholds {
		texts = append(texts, string(th.Signal)+" "+th.Value.String())
	}
	require.Equal(t, []string{
		"memory.available 100Mi", "nodefs.available 10%", "nodefs.inodesFree 5%",
		"imagefs.available 15%", "imagefs.inodesFree 5%", "allocatableMemory.available 100Mi",
	}, texts)

	o, err = settings.Parse([]string{"--node-name", "n", "--eviction-hard", ""}, io.Discard)
	require.NoError(t, err)
	require.Empty(t, o.Policy.Eviction.Thresholds)

	_, err = settings.Parse([]string{"--node-name", "n", "--eviction-hard", "nodefs.available<10"}, io.Discard)
	require.NoError(t, err)
	for args, want := range map[[2]string]string{
		{"--eviction-hard", "nodefs.available=10%"}:   "malformed pair",
		{"--eviction-hard", "nodefs.free<10%"}:        "nodefs.free",
		{"--eviction-soft", "memory.available<1Gi"}:   "memory.available",
		{"--container-log-max-size", "a lot"}:         "--container-log-max-size",
		{"--eviction-minimum-reclaim", "x<1"}:         "malformed pair",
		{"--image-gc-high-threshold", "eighty"}:       "invalid value",
		{"--eviction-pressure-transition-period", ""}: "invalid value",
	} {
		_, err := settings.Parse([]string{"--node-name", "n", args[0], args[1]}, io.Discard)
		require.ErrorContains(t, err, want, args)
	}
}

func TestDump_IsEquivalentToItsArguments(t *testing.T) {
	t.Parallel()
	text, err := settings.Dump([]string{"--max-pods", "7", "--listen", ":80", "--eviction-hard", "memory.available<1Gi", "--take-over"})
	require.NoError(t, err)
	require.Contains(t, string(text), "--take-over=true\n")
	require.Contains(t, string(text), "maxPods: 7\n")
	_, rest, _ := strings.Cut(string(text), "kind: KubeletConfiguration\n")
	before, _, _ := strings.Cut(string(text), "kind: KubeletConfiguration\n")
	again, err := settings.Dump([]string{"--take-over", "--config", configFile(t, strings.ReplaceAll(before, "apiVersion: kubelet.config.k8s.io/v1beta1\n", "")+rest)})
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
	_, err = settings.Dump([]string{"--max-pods", "x"})
	require.Error(t, err)
	require.Contains(t, settings.Flags(), "--shutdown-grace-period")
}
