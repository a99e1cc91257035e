package grpcprobe_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// BenchmarkCheck is to beat 94 allocations, and 100 us of CPU of both sides, which
// are those of gRPC's own client over a kept connection. The CPU here is the
// client's.
func BenchmarkCheck(b *testing.B) {
	address := remote(b)
	for name, fresh := range map[string]bool{"connection=kept": false, "connection=fresh": true} {
		b.Run(name, func(b *testing.B) {
			k := checker(b, grpcprobe.Config{})
			r := prober.GRPCRequest{Address: address, Fresh: fresh}
			b.ReportAllocs()
			began := cpu(b)
			for b.Loop() {
				if outcome, output := ask(b, k, r, patience); outcome != prober.Succeeded {
					b.Fatal(output)
				}
			}
			b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
	b.Run("connection=kept,client=grpc", func(b *testing.B) {
		client := clientOf(b, address)
		b.ReportAllocs()
		began := cpu(b)
		for b.Loop() {
			if outcome, output := kubeletSays(b.Context(), client, "", patience); outcome != prober.Succeeded {
				b.Fatal(output)
			}
		}
		b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
	})
}

// cpu returns what this process has used so far, in nanoseconds.
func cpu(tb testing.TB) int64 {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
