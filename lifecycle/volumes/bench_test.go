package volumes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// A refresh without changes only reads. Target: 1.4 ms for 100 files; the
// kubelet does it for each volume about every minute.
func BenchmarkRefresh(b *testing.B) {
	for _, files := range []int{1, 100} {
		data := map[string]string{}
		for i := range files {
			data[fmt.Sprint("key", i)] = strings.Repeat("x", 1000)
		}
		o := &objects{}
		o.configMaps = map[string]*corev1.ConfigMap{}
		o.set("cm", data)
		l, err := volumes.New(volumes.Config{Root: b.TempDir(), Mounter: &mounter{}, Objects: o})
		require.NoError(b, err)
		p := podOf(vol("v", configMap("cm")))
		_, _, err = l.Mount(b.Context(), p)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("unchanged/files=%d", files), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Refresh(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The mount table is read twice during the termination of a pod. Target: 1 ms for 1,000
// mounts.
func BenchmarkParseMountInfo(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "%d 35 0:%d / /var/lib/agent/pods/%d/volumes/kubernetes.io~secret/s rw,relatime shared:7 - tmpfs tmpfs rw,size=64k\n", i, i, i)
	}
	b.Run("mounts=1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if mounts, err := volumes.ParseMountInfo(strings.NewReader(text.String())); err != nil || len(mounts) != 1000 {
				b.Fatal(err)
			}
		}
	})
}
