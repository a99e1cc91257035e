package fakehost

import (
	"context"
	"fmt"
	"math"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// Size of the machine, except its disk.
const (
	processors  = 8
	memoryBytes = 32 << 30
)

// New returns a Host for node. The machine has 8 CPUs, 32Gi of memory, and the node's disk. The
// statistics describe the node's disk and programs. The Host has no Waker, Mounter, OOM sources
// or Run.
func New(node *fakecri.Node) *host.Host {
	return &host.Host{
		Facts:   func(context.Context) (host.Facts, error) { return facts(node), nil },
		Stats:   statistics{node},
		Cgroups: statistics{node}.Cgroups,
		ImageFS: disk{node},
	}
}

// facts returns the facts about the machine of node.
func facts(node *fakecri.Node) host.Facts {
	return host.Facts{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewQuantity(processors, resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(memoryBytes, resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(signed(node.DiskUsage().CapacityBytes), resource.BinarySI),
		},
		Info: corev1.NodeSystemInfo{
			MachineID: "fake", SystemUUID: "fake", BootID: "fake",
			KernelVersion: "0.0.0-fake", OSImage: "fakecri", OperatingSystem: "linux", Architecture: "amd64",
		},
		Addresses:  []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})},
		ResolvConf: []byte("nameserver 192.0.2.53\n"),
		Hosts:      []byte("127.0.0.1\tlocalhost\n192.0.2.1\tfake\n"),
		CgroupV2:   true,
	}
}

// disk measures the filesystem of the node.
type disk struct{ node *fakecri.Node }

// Usage returns the size of the disk.
func (d disk) Usage(context.Context) (imagegc.Usage, error) {
	u := d.node.DiskUsage()
	return imagegc.Usage{CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes}, nil
}

// statistics measures the node's disk and programs.
type statistics struct{ node *fakecri.Node }

// Node returns the signals of the disk, which is the only filesystem of the node. The signals of
// memory and processes are unknown, because measuring them would need calls of the runtime. A test
// that counts calls or makes them fail must not be affected by measurements.
func (s statistics) Node(context.Context) (eviction.NodeStats, error) {
	u := s.node.DiskUsage()
	observe := func(signal eviction.Signal, available, capacity uint64) eviction.Observation {
		return eviction.Observation{Signal: signal, Available: signed(available), Capacity: signed(capacity)}
	}
	return eviction.NodeStats{
		Layout: eviction.SingleFS,
		Observations: []eviction.Observation{
			observe(eviction.NodeFSAvailable, u.AvailableBytes, u.CapacityBytes),
			observe(eviction.NodeFSInodesFree, u.InodesFree, u.Inodes),
			observe(eviction.ImageFSAvailable, u.AvailableBytes, u.CapacityBytes),
			observe(eviction.ImageFSInodesFree, u.InodesFree, u.Inodes),
		},
	}, nil
}

// Pods returns the runtime's statistics of the pods' sandboxes and containers.
func (s statistics) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	all, err := measure(ctx, s.node)
	var out []eviction.PodStats
	for _, pod := range pods {
		if pod == nil || !all.has(pod.UID) {
			continue
		}
		out = append(out, all.podStats(pod.UID))
	}
	if err != nil {
		return out, fmt.Errorf("fakehost: measure pods: %w", err)
	}
	return out, nil
}

// signed returns n, or the largest int64 if n is larger.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
