package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manifests = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: server, image: "demo/web:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: work, image: "demo/job:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers: [{name: main, image: "demo/crash:1"}]
`

// TestAgent has pods run, end, crash and go, by their manifests alone.
func TestAgent(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(manifests), 0o600))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- start(ctx, []string{dir}, in); in.Close() }()

	lines := bufio.NewScanner(out)
	until := func(want ...string) {
		t.Helper()
		for len(want) > 0 {
			require.True(t, lines.Scan(), "the agent does not say %q", want)
			for i, w := range want {
				if strings.Contains(lines.Text(), w) {
					want = append(want[:i], want[i+1:]...)
					break
				}
			}
		}
	}
	until("web-node1 Running server: restarts=0", "job-node1 Succeeded work: restarts=0",
		"crash-node1 Running main: restarts=1", "crash-node1 Running main: restarts=1 CrashLoopBackOff")
	require.NoError(t, os.Remove(filepath.Join(dir, "pods.yaml")))
	until("web-node1 Running server: restarts=0 Completed") // a static pod has no other phase
	stop()
	go func() {
		for lines.Scan() { // what it says last
		}
	}()
	require.NoError(t, <-done)
}

func TestUsage(t *testing.T) {
	require.ErrorContains(t, start(t.Context(), nil, io.Discard), "usage")
	require.ErrorContains(t, start(t.Context(), []string{""}, io.Discard), "Path")
}
