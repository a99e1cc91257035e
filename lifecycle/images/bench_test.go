package images_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// The start of a container whose image is present costs one ImageStatus call.
func BenchmarkEnsure(b *testing.B) {
	n := &node{}
	n.preload("web:1")
	m, err := images.New(images.Config{Images: n})
	require.NoError(b, err)
	req := images.Request{Pod: pod("a"), Image: "web:1"}
	b.Run("present", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Ensure(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A lookup among many locations is linear.
func BenchmarkLookup(b *testing.B) {
	for _, size := range []int{1, 100} {
		var secrets []*corev1.Secret
		for i := range size {
			secrets = append(secrets, secret(fmt.Sprint(i), fmt.Sprintf("r%d.example.io", i), "me", "pass"))
		}
		k, err := images.NewKeyring(secrets...)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("locations=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(k.Lookup("r0.example.io/app")) != 1 {
					b.Fatal("no credentials found")
				}
			}
		})
	}
}
