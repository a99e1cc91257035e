package status

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func TestPeerGenerate(t *testing.T) { judge.Run(t, generatePeer(newKubeRuntime(t), messageFiles(t))) }

func TestPeerPhase(t *testing.T) { judge.Run(t, phasePeer()) }

func TestPeerMerge(t *testing.T) { judge.Run(t, mergePeer()) }

func TestPeerManager(t *testing.T) { judge.Run(t, managerPeer()) }

// messageFiles creates the files that containers write, in the kubelet's directories.
func messageFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(folder, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, folder, name), []byte(text), 0o600))
	}
	for _, c := range []string{"c1", "c2", "c3", "i1", "i2", "i3", "e0", "e1", "e2"} {
		for name, text := range map[string]string{
			"short": "goodbye", "empty": "", "long": strings.Repeat("x", 5000), "runes": strings.Repeat("é", 3000),
		} {
			write("pods/uid-1/containers/"+c, name, text)
		}
		write("logs/ns_pod_uid-1/"+c, "log", "2000-01-01T00:00:00.000000000Z stdout F one\n2000-01-01T00:00:01.000000000Z stderr F two\n")
	}
	return dir
}
