package kubeletconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

const header = "apiVersion: " + kubeletconfig.APIVersion + "\nkind: " + kubeletconfig.Kind + "\n"

// TestFiles shows the result of parsing files: problems, or differences from the defaults, and
// notes.
func TestFiles(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			text := d.Input + "\n"
			switch d.Cmd {
			case "parse":
				text = header + text
			case "policies":
				return changedPolicies(t, d.Input+"\n")
			}
			f, err := kubeletconfig.Parse([]byte(text))
			if err != nil {
				require.Equal(t, kubeletconfig.File{}, f)
				return err.Error() + "\n"
			}
			out, err := f.Settings.YAML()
			require.NoError(t, err)
			again, err := kubeletconfig.Parse(out)
			require.NoError(t, err, string(out))
			require.Equal(t, f.Settings, again.Settings, "a marshalled configuration must parse to the same settings")
			lines := difference(t, string(out))
			for _, n := range f.Notes {
				lines += "note: " + n.Error() + "\n"
			}
			return lines
		})
	})
}

// difference returns the lines of out that are not in the defaults.
func difference(t *testing.T, out string) string {
	t.Helper()
	base, err := kubeletconfig.Default().YAML()
	require.NoError(t, err)
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains("\n"+string(base), "\n"+line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestParse_FieldsRefuseWrongTypes(t *testing.T) {
	t.Parallel()
	out, err := kubeletconfig.Default().YAML()
	require.NoError(t, err)
	names := []string{ // and field names in the YAML of the defaults
		"staticPodURLHeader", "allowedUnsafeSysctls", "clusterDNS", "systemReserved", "kubeReserved", "singleProcessOOMKill",
		"maxParallelImagePulls", "preloadedImagesVerificationAllowlist", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim",
		"shutdownGracePeriodByPodPriority", "tlsCipherSuites", "tlsCurvePreferences",
	}
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(line, ":"); name == strings.TrimLeft(name, " -") && name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	require.Greater(t, len(names), 50)
	for _, name := range names {
		for _, value := range []string{"{a: {b: [c]}}", "[[1], {}]", "1.5", "2024-01-01", "!!binary aGk=", "[{priority: x}]", "{maxContainerRestartPeriod: 5}"} {
			_, err := kubeletconfig.Parse([]byte(header + name + ": " + value + "\n"))
			require.ErrorContains(t, err, "line 3: "+name, value)
			require.Regexp(t, ": (want |unknown field)", err.Error(), "%s: %s", name, value)
		}
	}
}

func TestParse_NullIsNotSet(t *testing.T) {
	t.Parallel()
	f, err := kubeletconfig.Parse([]byte(header + "maxPods: null\nevictionHard:\nauthentication: null\nfeatureGates: ~\ncrashLoopBackOff: {maxContainerRestartPeriod: null}\n"))
	require.NoError(t, err)
	require.Equal(t, kubeletconfig.File{Settings: kubeletconfig.Default()}, f)
}

func TestLoad_RelativePathsStartAtTheFilesFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte(header+
		"staticPodPath: manifests\ntlsCertFile: pki/tls.crt\ntlsPrivateKeyFile: /pki/tls.key\nresolvConf: \"\"\npodLogsDir: ../logs\nauthentication: {x509: {clientCAFile: pki/ca.crt}}\n"), 0o600))
	f, err := kubeletconfig.Load(file)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "manifests"), f.Settings.StaticPodPath)
	require.Equal(t, filepath.Join(dir, "pki", "tls.crt"), f.Settings.TLSCertFile)
	require.Equal(t, "/pki/tls.key", f.Settings.TLSPrivateKeyFile)
	require.Equal(t, filepath.Join(dir, "pki", "ca.crt"), f.Settings.Authentication.X509.ClientCAFile)
	require.Empty(t, f.Settings.ResolverConfig)
	require.Equal(t, filepath.Join(filepath.Dir(dir), "logs"), f.Settings.PodLogsDir)
}

func TestLoad_NamesTheFileInEachProblem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte(header+"maxPod: 3\nport: x\n"), 0o600))
	_, err := kubeletconfig.Load(file)
	require.EqualError(t, err, file+": line 3: maxPod: unknown field\n"+file+`: line 4: port: want a whole number, got "x"`)

	_, err = kubeletconfig.Load(file + "s")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = kubeletconfig.Load(filepath.Dir(file))
	require.Error(t, err)
	require.NoError(t, os.WriteFile(file, make([]byte, 2<<20), 0o600))
	_, err = kubeletconfig.Load(file)
	require.ErrorContains(t, err, "longer than")
}

func TestThresholds_MatchTheSettings(t *testing.T) {
	t.Parallel()
	s := kubeletconfig.Default()
	s.EvictionHard = map[string]string{"memory.available": "1Gi"}
	s.EnforceNodeAllocatable = []string{"none"}
	got, err := s.Thresholds()
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, time.Duration(0), got[0].GracePeriod)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "maxPods: 10\nevictionHard: {memory.available: 1Gi}\nclusterDNS: [10.0.0.10]\n"))
	f.Add([]byte(header + "a: &a [1]\nclusterDNS: *a\n<<: {kind: x}\n"))
	f.Add([]byte(header + "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 2}]\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}"))
	f.Add([]byte(`{"apiVersion":"` + kubeletconfig.APIVersion + `","kind":"` + kubeletconfig.Kind + `","systemReserved":{"cpu":"1"},"cgroupRoot":"/x"}`))
	f.Add([]byte("a: 1\n---\nb: 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := kubeletconfig.Parse(data)
		if err != nil {
			require.Equal(t, kubeletconfig.File{}, file)
			return
		}
		require.Empty(t, file.Settings.Check())
		out, err := file.Settings.YAML()
		require.NoError(t, err)
		again, err := kubeletconfig.Parse(out)
		require.NoError(t, err, string(out))
		require.Equal(t, file.Settings, again.Settings, string(out))
	})
}
