package fakehost_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
)

// The figures of the machine follow the disk of the fake node.
func Example() {
	node, err := fakecri.New(fakecri.Config{Disk: fakecri.Disk{CapacityBytes: 100 << 30}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := fakehost.New(node)
	ctx := context.Background()

	facts, err := h.Facts(ctx)
	memory := facts.Capacity[corev1.ResourceMemory]
	fmt.Println(memory.String(), facts.Addresses[0], err)

	if err := node.FillDisk(99<<30, 0); err != nil {
		fmt.Println(err)
	}
	stats, err := h.Stats.Node(ctx)
	for _, o := range stats.Observations {
		fmt.Println(o.Signal, o.Available, "of", o.Capacity)
	}
	fmt.Println(err)
	// Output:
	// 32Gi 192.0.2.1 <nil>
	// nodefs.available 1073741824 of 107374182400
	// nodefs.inodesFree 6553600 of 6553600
	// imagefs.available 1073741824 of 107374182400
	// imagefs.inodesFree 6553600 of 6553600
	// <nil>
}
