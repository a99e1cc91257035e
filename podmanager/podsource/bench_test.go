package podsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func folder(b *testing.B, n int) string {
	b.Helper()
	path := b.TempDir()
	for i := range n {
		text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: pod-%d
  labels: {app: web, tier: front}
spec:
  volumes: [{name: data, hostPath: {path: /var/lib/app}}]
  containers:
  - name: app
    image: registry.example/app:1.2.3
    args: ["--port=8080", "--data=/data"]
    env: [{name: MODE, value: production}]
    ports: [{name: http, containerPort: 8080}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
    volumeMounts: [{name: data, mountPath: /data}]
    livenessProbe: {httpGet: {path: /healthz, port: http}}
`, i)
		require.NoError(b, os.WriteFile(filepath.Join(path, fmt.Sprintf("pod-%d.yaml", i)), []byte(text), 0o600))
	}
	return path
}

// The goal is to read a folder of 1,000 manifests within a second.
func BenchmarkLoadFirst(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("manifests=%d", n), func(b *testing.B) {
			path := folder(b, n)
			b.ReportAllocs()
			for b.Loop() {
				d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: path, NodeName: "n"})
				require.NoError(b, err)
				res, err := d.Load(b.Context())
				require.NoError(b, err)
				require.Len(b, res.Pods, n)
			}
		})
	}
}

// Measures the time from the end of a write to the call of set, in a watched directory. Most
// of it is the delay that prevents a pass from reading an incomplete file. The target is less
// than 100 ms.
func BenchmarkEditToSet(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("manifests=%d", n), func(b *testing.B) {
			path, told := folder(b, n), make(chan struct{}, 10)
			d, err := podsource.NewDirectory(podsource.DirectoryConfig{
				Path: path, NodeName: "n", Period: time.Hour,
			})
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- d.Run(ctx, func(context.Context, []*corev1.Pod) { told <- struct{}{} }) }()
			<-told
			var slowest time.Duration
			i := 0
			for b.Loop() {
				i++
				require.NoError(b, os.WriteFile(filepath.Join(path, "edited.yaml"), []byte(yamlOf("edited", fmt.Sprintf("i:%d", i))), 0o600))
				written := time.Now()
				<-told
				slowest = max(slowest, time.Since(written))
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "max-ms")
			cancel()
			require.NoError(b, <-done)
		})
	}
}

func BenchmarkLookUpSecret(b *testing.B) {
	path, store := b.TempDir(), podsource.NewStore()
	require.NoError(b, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(secret), 0o600))
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: path, NodeName: "n", Store: store})
	require.NoError(b, err)
	_, err = d.Load(b.Context())
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.Secret(b.Context(), of("web"), "pass"); err != nil {
			b.Fatal(err)
		}
	}
}

// A pass over an unchanged folder lists the folder and calls stat for each manifest.
func BenchmarkLoadAtRest(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("manifests=%d", n), func(b *testing.B) {
			clock := testingclock.NewFakeClock(time.Now())
			d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: folder(b, n), NodeName: "n", Clock: clock})
			require.NoError(b, err)
			for range 2 {
				_, err = d.Load(b.Context())
				require.NoError(b, err)
				clock.Step(time.Minute)
			}
			b.ReportAllocs()
			for b.Loop() {
				res, err := d.Load(b.Context())
				require.NoError(b, err)
				require.Zero(b, res.FilesRead)
			}
		})
	}
}
