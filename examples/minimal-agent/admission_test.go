package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAdmission_MovingManifestsAdmitsNoMore repeatedly removes and restores the manifests of
// rejected pods until housekeeping has run a few times.
func TestAdmission_MovingManifestsAdmitsNoMore(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, aside := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b"} {
		manifest(t, dir, name+".yaml", podYAML(name, "demo/web:1"))
	}
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir(), "--max-pods", "2")
	await(t, "a and b run", func() bool { return a.phase(t, "a") == "Running" && a.phase(t, "b") == "Running" })
	const moved = 5
	for i := range moved {
		manifest(t, aside, fmt.Sprintf("more%d.yaml", i), podYAML(fmt.Sprint("more", i), "demo/web:1"))
	}
	move := func(from, to string) {
		for i := range moved {
			name := fmt.Sprintf("more%d.yaml", i)
			require.NoError(t, os.Rename(filepath.Join(from, name), filepath.Join(to, name)))
		}
	}
	for range 10 {
		move(aside, dir)
		await(t, "the pods are refused", func() bool {
			refused := 0
			for _, p := range a.pods(t) {
				if p.Status.Reason == "OutOfpods" {
					refused++
				}
			}
			return refused == moved
		})
		move(dir, aside)
		await(t, "the refused pods are removed", func() bool { return len(a.pods(t)) == 2 })
	}
	require.NoError(t, a.stop())
	boxes, err := node.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{})
	require.NoError(t, err)
	require.Len(t, boxes, 2, "no other pod must start")
}
