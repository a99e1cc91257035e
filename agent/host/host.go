package host

import (
	"context"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// Host is the machine of an agent. Each optional field is a capability; its comment describes
// what nil means. [Local] returns the Host of this process's machine. Fields may be replaced
// before the agent starts. All functions, and the methods of all interfaces, may be called
// concurrently. A Host serves one agent.
type Host struct {
	// Facts returns the current facts about the machine. Required. The agent calls it for each
	// node status, and at most once a second while pods change. If it returns an error, it also
	// returns all facts that could be read.
	Facts func(context.Context) (Facts, error)
	// Stats measures the node and its pods. If nil, no eviction threshold is ever reached: the
	// agent evicts no pods. It has no stats summary either.
	Stats Stats
	// Waker requests an eviction evaluation before the next one is due, for example under
	// memory pressure. Optional.
	Waker eviction.Waker
	// ImageFS measures the filesystem of the images. If nil, images are not deleted to free
	// disk space.
	ImageFS imagegc.FS
	// Mounter mounts tmpfs. If nil, emptyDir volumes with medium Memory are on the disk, and
	// volumes need no privileges.
	Mounter volumes.Mounter
	// Dial connects to pods for probes and hooks, as [net.Dialer.DialContext] does. If nil, the
	// network of this process is used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OOM are the sources of OOM kills. If empty, OOM kills are not reported.
	OOM []oomwatch.Source
	// Run does the background work of the other capabilities, such as refreshing statistics,
	// until ctx is done. It then releases their resources and returns nil. The agent calls it
	// once. If nil, there is no background work.
	Run func(context.Context) error
}

// Stats measures the node and pods. If a method returns an error, its result still has
// everything that could be measured. The given pods are neither retained nor modified; nil
// entries are ignored. The caller owns the results.
type Stats interface {
	// Node measures the eviction signals of the node. The agent calls it up to 20 times a
	// second under pressure.
	Node(ctx context.Context) (eviction.NodeStats, error)
	// Pods returns the statistics that eviction uses, for the given pods. The result omits pods
	// without statistics.
	Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error)
	// Summary returns the kubelet's stats summary of the node and the given pods. If its
	// NodeName is empty, the agent sets it.
	Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error)
}

// Facts describe a machine. Unknown fields are empty.
type Facts struct {
	// Capacity has cpu, memory, ephemeral-storage, and a hugepages-SIZE resource for each size
	// of huge pages. It does not have the resource pods, which the agent's configuration
	// determines.
	Capacity corev1.ResourceList
	// SwapBytes is the size of the swap space.
	SwapBytes int64
	// Info identifies the machine, its kernel and its operating system. The versions of
	// the agent and of the runtime are empty.
	Info corev1.NodeSystemInfo
	// Addresses are the addresses at which other machines reach this one, the primary one
	// first.
	Addresses []netip.Addr
	// ResolvConf and Hosts are the contents of the machine's resolv.conf and hosts files.
	ResolvConf, Hosts []byte
	// ResolvConfErr is the error of reading resolv.conf. While it is set, no sandbox is created
	// for a pod that needs the file.
	ResolvConfErr error
	// NoLookups reports whether the setting resolvConf is empty. Pods that would use the
	// machine's DNS configuration then can't resolve names.
	NoLookups bool
	// CgroupV2 reports whether the machine has the unified cgroup hierarchy.
	CgroupV2 bool
	// AppArmor and SELinux report whether the kernel has them enabled. SELinux may be
	// permissive.
	AppArmor, SELinux bool
}
