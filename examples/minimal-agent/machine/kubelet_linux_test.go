package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// process writes an entry of a process table.
func process(t *testing.T, proc, pid, comm string, args ...string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "root", "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(append([]string{comm}, args...), "\x00")+"\x00"), 0o600))
}

func TestCheckNoKubelet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, link := filepath.Join(dir, "cri.sock"), filepath.Join(dir, "link.sock")
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	require.NoError(t, os.Symlink(socket, link))

	for name, c := range map[string]struct {
		comm string
		args []string
		want bool
	}{
		"by its flag":               {"kubelet", []string{"--container-runtime-endpoint=unix://" + socket}, true},
		"flag and value apart":      {"kubelet", []string{"--v", "2", "--container-runtime-endpoint", "unix://" + socket}, true},
		"by another path to it":     {"kubelet", []string{"--container-runtime-endpoint=unix://" + link}, true},
		"by its configuration file": {"kubelet", []string{"--config=/etc/kubelet.yaml"}, true},
		"on another socket":         {"kubelet", []string{"--container-runtime-endpoint=unix:///elsewhere.sock"}, false},
		"the last flag counts":      {"kubelet", []string{"--container-runtime-endpoint=unix://" + socket, "--container-runtime-endpoint=unix:///elsewhere.sock"}, false},
		"on the default socket":     {"kubelet", nil, false},
		"not a kubelet":             {"kubelet-exporter", []string{"--container-runtime-endpoint=unix://" + socket}, false},
	} {
		proc := t.TempDir()
		process(t, proc, "1", "init")
		process(t, proc, "42", c.comm, c.args...)
		require.NoError(t, os.WriteFile(filepath.Join(proc, "42", "root", "etc", "kubelet.yaml"),
			[]byte("kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://"+socket+"\n"), 0o600))
		err := checkNoKubelet(proc, socket)
		if c.want {
			require.ErrorContains(t, err, "process 42", name)
		} else {
			require.NoError(t, err, name)
		}
	}
	require.ErrorContains(t, kubeletOnDefault(t), "unix:///run/containerd/containerd.sock")
	require.NoError(t, checkNoKubelet(filepath.Join(dir, "none"), socket), "a missing process table must not be an error")
}

// kubeletOnDefault checks for a kubelet whose endpoint is not configured.
func kubeletOnDefault(t *testing.T) error {
	t.Helper()
	proc := t.TempDir()
	process(t, proc, "7", "kubelet")
	return checkNoKubelet(proc, "/run/containerd/containerd.sock")
}
