package host_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/host"
)

// This is the machine of this process with another address.
func ExampleLocal() {
	h, err := host.Local(host.LocalConfig{NodeName: "node-1", Root: "/var/lib/agent", PodLogs: "/var/log/pods"})
	if err != nil {
		fmt.Println(err)
		return
	}
	local := h.Facts
	h.Facts = func(ctx context.Context) (host.Facts, error) {
		facts, err := local(ctx)
		facts.Addresses = append([]netip.Addr{netip.MustParseAddr("203.0.113.7")}, facts.Addresses...)
		return facts, err
	}

	facts, err := h.Facts(context.Background())
	processors := facts.Capacity[corev1.ResourceCPU]
	fmt.Println(processors.Value() > 0, facts.Info.OperatingSystem == runtime.GOOS, facts.Addresses[0], err)
	// Output:
	// true true 203.0.113.7 <nil>
}
