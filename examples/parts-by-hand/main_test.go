package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/fakecri"
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

// TestAgent adds and deletes manifests of pods that run, complete and crash.
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
			require.True(t, lines.Scan(), "the agent did not print %q", want)
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
	until("web-node1 Running server: restarts=0 Completed") // the phase of a static pod stays Running
	stop()
	go func() {
		for lines.Scan() { // reads the remaining output
		}
	}()
	require.NoError(t, <-done)
}

// inBubble runs f with an agent and a pod. The programs of the node exit after a second or
// never, and the pod runs one of them.
func inBubble(t *testing.T, f func(t *testing.T, a *agent, node *fakecri.Node, pod *corev1.Pod)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node, err := fakecri.New(fakecri.Config{
			Images: []fakecri.Image{{Name: "app:1"}, {Name: "job:1"}}, Record: true,
			Programs: map[string]fakecri.Program{"app:1": {IgnoreTerm: true}, "job:1": {Runtime: 100 * time.Millisecond}},
		})
		require.NoError(t, err)
		a, err := newAgent(t.Context(), node, t.TempDir(), t.TempDir(), io.Discard)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		for _, part := range []func(context.Context) error{a.runHousekeeping, a.pleg.Run, a.workers.Run} {
			parts.Go(func() { _ = part(ctx) })
		}
		f(t, a, node, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid"},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(5)),
				Containers:                    []corev1.Container{{Name: "server", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent}},
			},
		})
		stop()
		parts.Wait()
	})
}

// The manifest is created again within the grace period of its pod, at its end, and after it.
func TestAgent_PodDefinedAgainWhileTerminating(t *testing.T) {
	for _, away := range []time.Duration{time.Millisecond, 4 * time.Second, 5 * time.Second, 5500 * time.Millisecond, time.Minute} {
		inBubble(t, func(t *testing.T, a *agent, _ *fakecri.Node, pod *corev1.Pod) {
			t.Helper()
			runs := func() bool { s, err := a.cache.Get("uid"); return err == nil && s.Running() }
			a.setPods(t.Context(), []*corev1.Pod{pod})
			time.Sleep(3 * time.Second)
			require.True(t, runs())
			a.setPods(t.Context(), nil)
			time.Sleep(away)
			a.setPods(t.Context(), []*corev1.Pod{pod})
			time.Sleep(time.Minute)
			require.True(t, runs(), "manifest missing for %v", away)
			require.False(t, a.workers.IsPodTerminationRequested("uid"), "manifest missing for %v", away)
		})
	}
}

// A pod that has run to completion is not started again by housekeeping.
func TestAgent_CompletedPodIsNotStartedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, a *agent, node *fakecri.Node, pod *corev1.Pod) {
		t.Helper()
		pod.Spec.RestartPolicy, pod.Spec.Containers[0].Image = corev1.RestartPolicyNever, "job:1"
		a.setPods(t.Context(), []*corev1.Pod{pod})
		time.Sleep(time.Minute)
		made := 0
		for _, call := range node.Calls() {
			if call.Method == "CreateContainer" {
				made++
			}
		}
		require.Equal(t, 1, made)
	})
}

func TestUsage(t *testing.T) {
	require.ErrorContains(t, start(t.Context(), nil, io.Discard), "usage")
	require.ErrorContains(t, start(t.Context(), []string{""}, io.Discard), "Path")
}
