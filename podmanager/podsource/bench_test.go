package podsource_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// The aim: a folder of 1,000 manifests within a second.
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

// A folder at rest: a listing and a stat per manifest.
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
