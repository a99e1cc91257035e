package podlimits_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/internal/podlimits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOf(t *testing.T) {
	t.Parallel()
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, c := range map[string]struct {
		containers []corev1.ResourceRequirements
		period     time.Duration
		want       podlimits.Limits
	}{
		"nothing asked": {make([]corev1.ResourceRequirements, 1), time.Second, podlimits.Limits{CPUShares: 2}},
		"the sum": {
			[]corev1.ResourceRequirements{{Requests: amounts("1", "1Mi"), Limits: amounts("2", "2Mi")}, {Limits: amounts("500m", "1Mi")}},
			100 * time.Millisecond,
			podlimits.Limits{CPUShares: 1536, CPUQuotaMicros: 250_000, CPUPeriodMicros: 100_000, MemoryBytes: 3 << 20},
		},
		"without quotas":    {[]corev1.ResourceRequirements{{Limits: amounts("1", "1Mi")}}, 0, podlimits.Limits{CPUShares: 1024, MemoryBytes: 1 << 20}},
		"one without limit": {[]corev1.ResourceRequirements{{Limits: amounts("1", "1Mi")}, {}}, time.Second, podlimits.Limits{CPUShares: 1024}},
	} {
		pod := &corev1.Pod{}
		for _, r := range c.containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: r})
		}
		require.Equal(t, c.want, podlimits.Of(pod, c.period), name)
	}
}

func TestSharesAndQuota_StayInTheKernelsRange(t *testing.T) {
	t.Parallel()
	for milli, want := range map[int64]int64{-1: 2, 0: 2, 1: 2, 3: 3, 1000: 1024, 1 << 62: 262144} {
		require.Equal(t, want, podlimits.Shares(milli), milli)
	}
	for milli, want := range map[int64]int64{0: 1000, 1: 1000, 1500: 150_000, 1 << 62: 1 << 40 * 100} {
		require.Equal(t, want, podlimits.Quota(milli, 100_000), milli)
	}
}
