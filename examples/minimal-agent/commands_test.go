package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
)

// TestCommands_QueryARunningAgent runs each command against a running agent.
func TestCommands_QueryARunningAgent(t *testing.T) {
	t.Parallel()
	file := configFile(t, "staticPodURL: http://127.0.0.1:1/\nstaticPodURLHeader: {Authorization: [s3cret]}\nfailSwapOn: true\n")
	a := start(t, "--config", file, "--enable-pprof")
	await(t, "web runs", func() bool { return a.phase(t, "web") == corev1.PodRunning })
	for line, want := range map[string]string{
		"status":               "node1, Ready",
		"status -o yaml":       "managers:",
		"top":                  "default/web-node1",
		"pods web":             "Running",
		"pods -o json":         `"kind": "PodList"`,
		"events web":           "Container started",
		"explain web":          "default/web-node1 is Running",
		"evict --dry-run":      "nodefs.available<10%",
		"gc --dry-run":         "docker.io/demo/web:1",
		"gc --dry-run -o json": `"images"`,
		"__complete logs we":   "web-node1",
	} {
		var stdout, stderr bytes.Buffer
		p := cli.Program{
			Name: "minimal-agent", Stdout: &stdout, Stderr: &stderr, Clock: clock.RealClock{}, RunFlags: settings.Flags,
			Getenv: func(string) string { return a.url },
		}
		require.Equal(t, cli.ExitOK, p.Main(t.Context(), strings.Fields(line)), "%s: %s", line, &stderr)
		require.Contains(t, stdout.String(), want, line)
		if strings.HasPrefix(line, "__") {
			continue
		}
		require.Empty(t, stderr.String(), line)
	}
	_, body := a.get(t, "/configz")
	require.Contains(t, body, `"kubeletconfig":{`)
	require.Contains(t, body, `"Authorization":["\u003cmasked\u003e"]`)
	require.NotContains(t, body, "s3cret")
	require.NoError(t, a.stop())
	stdout, _ := a.printed()
	require.Equal(t, file+": line 5: failSwapOn: ignored: the agent does not check or change these kernel settings", stdout[0])
}
