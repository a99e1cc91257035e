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
`

// TestRun adds and deletes manifests.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(manifests), 0o600))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{dir}, in)
		in.Close()
	}()
	want := map[string]bool{"web-node1 Running": true, "job-node1 Succeeded": true}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		for w := range want {
			if strings.HasPrefix(lines.Text(), w) {
				delete(want, w)
			}
		}
		if len(want) == 0 {
			stop()
		}
	}
	require.Empty(t, want, "expected lines that the agent did not print")
	require.NoError(t, <-done)
}

func TestRun_Usage(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), nil, io.Discard), "usage")
}
