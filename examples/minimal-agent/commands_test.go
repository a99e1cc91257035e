package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
)

// TestCommandsAskARunningAgent has each command understand what the server says.
func TestCommandsAskARunningAgent(t *testing.T) {
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
			Name: "minimal-agent", Stdout: &stdout, Stderr: &stderr, Clock: clock.RealClock{}, RunFlags: runFlags,
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
	require.Equal(t, file+": line 5: failSwapOn: ignored: the machine is taken as it is", stdout[0])
}

func TestDumpIsAFileThatMeansTheSame(t *testing.T) {
	t.Parallel()
	text, err := dump([]string{"--max-pods", "7", "--listen", ":80", "--eviction-hard", "memory.available<1Gi", "--take-over"})
	require.NoError(t, err)
	require.Contains(t, string(text), "--take-over=true\n")
	require.Contains(t, string(text), "maxPods: 7\n")
	_, rest, _ := strings.Cut(string(text), "kind: KubeletConfiguration\n")
	before, _, _ := strings.Cut(string(text), "kind: KubeletConfiguration\n")
	again, err := dump([]string{"--take-over", "--config", configFile(t, strings.ReplaceAll(before, "apiVersion: kubelet.config.k8s.io/v1beta1\n", "")+rest)})
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
	_, err = dump([]string{"--max-pods", "x"})
	require.Error(t, err)
	require.Contains(t, runFlags(), "--shutdown-grace-period")
}
