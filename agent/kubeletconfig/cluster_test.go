package kubeletconfig

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// loadKubelet reads a file with a text as an agent of a cluster does.
func loadKubelet(t *testing.T, text string) (File, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: "+APIVersion+"\nkind: "+Kind+"\n"+text), 0o600))
	return LoadKubelet(file)
}

// TestClusterSettings_AreTheKubelets compares the types and the documented defaults.
func TestClusterSettings_AreTheKubelets(t *testing.T) {
	t.Parallel()
	kubelet := kubeletFields(t)
	s := Kubelet()
	typ := reflect.TypeFor[ClusterSettings]()
	require.Len(t, s.ClusterSettings.fields(), typ.NumField())
	for i, f := range s.ClusterSettings.fields() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		require.Equal(t, name, f.name)
		require.Same(t, f.into, reflect.ValueOf(s.ClusterSettings).Elem().Field(i).Addr().Interface())
		require.Equal(t, kubelet[name].typ, strings.ReplaceAll(typ.Field(i).Type.String(), "v1.", ""), name)
		want := kubelet[name].documented
		require.NotEmpty(t, want, name)
		got, err := sigsyaml.Marshal(f.into)
		require.NoError(t, err)
		require.Equal(t, normal(t, want, f.into), normal(t, string(got), f.into), name)
	}
}

func TestKubelet_HasTheKubeletsDefaults(t *testing.T) {
	t.Parallel()
	kubelet, s := kubeletFields(t), Kubelet()
	for _, f := range s.fields() {
		switch f.name {
		case "address", "port", "healthzPort", "cgroupsPerQOS", "enableProfilingHandler":
			got, err := sigsyaml.Marshal(f.into)
			require.NoError(t, err)
			require.Equal(t, normal(t, kubelet[f.name].documented, f.into), normal(t, string(got), f.into), f.name)
		}
	}
	require.Equal(t, "/var/log/pods", s.PodLogsDir)
	require.True(t, s.Authentication.Webhook.Enabled)
	require.Equal(t, Webhook, s.Authorization.Mode)
	require.Empty(t, s.Check())
}

func TestLoadKubelet(t *testing.T) {
	t.Parallel()
	f, err := loadKubelet(t, `
registerWithTaints: [{key: a.b/c, value: d, effect: NoSchedule}]
nodeStatusUpdateFrequency: 20s
nodeLeaseDurationSeconds: 0
nodeStatusMaxImages: -1
authorization: {mode: ""}
`)
	require.NoError(t, err)
	require.Empty(t, f.Notes)
	s := f.Settings
	require.Equal(t, []corev1.Taint{{Key: "a.b/c", Value: "d", Effect: corev1.TaintEffectNoSchedule}}, s.RegisterWithTaints)
	require.Equal(t, 20*time.Second, s.NodeStatusReportFrequency.Duration, "as often as the status is computed")
	require.EqualValues(t, 40, s.NodeLeaseDurationSeconds)
	require.EqualValues(t, -1, s.NodeStatusMaxImages)
	require.Equal(t, Webhook, s.Authorization.Mode)
	out, err := s.YAML()
	require.NoError(t, err)
	again, err := parse(out, "", Kubelet)
	require.NoError(t, err)
	require.Equal(t, s, again.Settings, "what is written is read as the same")
}

func TestLoadKubelet_FieldsThatAreSetAreNotReplaced(t *testing.T) {
	t.Parallel()
	f, err := loadKubelet(t, `
nodeStatusUpdateFrequency: 20s
nodeStatusReportFrequency: 1m
registerNode: false
kubeAPIQPS: 0
authorization: {mode: AlwaysAllow}
authentication: {webhook: {enabled: false}}
`)
	require.NoError(t, err)
	s := f.Settings
	require.Equal(t, time.Minute, s.NodeStatusReportFrequency.Duration)
	require.False(t, s.RegisterNode)
	require.Zero(t, s.KubeAPIQPS)
	require.Equal(t, AlwaysAllow, s.Authorization.Mode)
	require.False(t, s.Authentication.Webhook.Enabled)
	require.Equal(t, 2*time.Minute, s.Authentication.Webhook.CacheTTL.Duration)
}

func TestLoadKubelet_ReportsAMissingFile(t *testing.T) {
	t.Parallel()
	_, err := LoadKubelet(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorContains(t, err, "read configuration")
}

func TestLoadKubelet_RefusesInvalidValues(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"registerWithTaints": `[{key: "", value: "/", effect: Sometimes}]`, "nodeStatusUpdateFrequency": "-1s", "nodeStatusReportFrequency": "-1s",
		"nodeLeaseDurationSeconds": "-1", "nodeStatusMaxImages": "-2", "kubeAPIQPS": "-1", "kubeAPIBurst": "-1", "eventRecordQPS": "-1", "eventBurst": "-1",
		"contentType": "text/plain", "serverTLSBootstrap": "true\ntlsCertFile: /c\ntlsPrivateKeyFile: /k",
		"registerNode": "false\nregisterWithTaints: [{key: a, effect: NoExecute}]",
	}
	free := map[string]string{"providerID": "its format is the cloud's", "rotateCertificates": "it is a boolean"}
	for _, f := range new(ClusterSettings).fields() {
		if free[f.name] != "" {
			continue
		}
		_, err := loadKubelet(t, f.name+": "+bad[f.name]+"\n")
		want := f.name
		if f.name == "registerNode" {
			want = "registerWithTaints"
		}
		require.ErrorContains(t, err, want+": ", f.name)
	}
}
