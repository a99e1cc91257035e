package podrunner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// TestLinksToLogs checks that each instance of a container has a link for log shippers.
func TestLinksToLogs(t *testing.T) {
	t.Parallel()
	links := filepath.Join(t.TempDir(), "log", "containers")
	b := newBed(t, func(c *podrunner.Config) { c.ContainerLogs = links })
	pod, long := podOf(nil, "app"), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	id := b.look(pod.UID).Container("app").GetId()
	target, err := os.Readlink(filepath.Join(links, "pod_ns_app-"+id+".log"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(podrunner.LogDirectory(b.logs, pod), "app", "0.log"), target)

	long.UID, long.Name = "l", strings.Repeat("n", 240)
	require.NoError(t, b.sync(long))
	id = b.look(long.UID).Container("app").GetId()
	_, err = os.Readlink(filepath.Join(links, (long.Name + "_ns_app-" + id)[:251]+".log"))
	require.NoError(t, err)
}
