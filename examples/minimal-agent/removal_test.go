package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// TestRemoval_RefusedByTheRuntime checks the removal after a restart of the agent, when no
// worker releases the pod's resources.
func TestRemoval_RefusedByTheRuntime(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1", "    volumeMounts: [{name: v, mountPath: /v}]\n", "  volumes: [{name: v, emptyDir: {}}]\n"))
	first := start(t, args...)
	await(t, "a runs", func() bool { return first.phase(t, "a") == corev1.PodRunning })
	folder := filepath.Join(root, "pods", string(first.pods(t)["a-node1"].UID))
	require.DirExists(t, filepath.Join(folder, "volumes"))
	require.NoError(t, first.stop())

	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	for _, call := range []string{"RemoveContainer", "RemovePodSandbox"} {
		require.NoError(t, node.Fail(call, fakecri.Fault{Err: errors.New("a runc init is left")}))
	}
	second := start(t, args...)
	isThere := func(path string) bool { _, err := os.Stat(path); return err == nil }
	await(t, "the pod's volumes are gone", func() bool { return !isThere(filepath.Join(folder, "volumes")) })
	told := func(text string) int {
		_, stderr := second.printed()
		return strings.Count(stderr, text)
	}
	await(t, "the agent logs the failed removal once", func() bool { return told("could not remove the data of an ended pod") == 1 })
	require.Zero(t, second.removed("a"))
	require.True(t, isThere(folder))

	node.ClearFaults("")
	await(t, "a is gone", func() bool { return second.removed("a") == 1 && !isThere(folder) })
	await(t, "the agent logs the successful removal once", func() bool { return told("removed the data of an ended pod after failed attempts") == 1 })
	require.NoError(t, second.stop())
	require.Equal(t, 1, told("could not remove the data of an ended pod"))
}

// TestRemoval_PodThatNeverStartedLeavesNoFiles checks a pod that never existed in the
// runtime. When its manifest is deleted, the agent must remove its files. The manifest is
// created twice.
func TestRemoval_PodThatNeverStartedLeavesNoFiles(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("RunPodSandbox", fakecri.Fault{Err: errors.New("no network")}))
	dir, root := t.TempDir(), t.TempDir()
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root)
	logs := func() []string {
		found, err := filepath.Glob(filepath.Join(root, "logs/pods/*"))
		require.NoError(t, err)
		return found
	}
	for range 2 {
		manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
		await(t, "the pod has a log folder", func() bool { return len(logs()) == 1 })
		require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
		await(t, "the log folder is removed", func() bool { return len(logs()) == 0 })
	}
	require.NoError(t, a.stop())
}
