package host

import (
	"context"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// Host has the functions of the machine on which an agent runs its pods. Each optional field is
// a capability. The comment of the field describes what nil means. [Local] returns the Host of
// this process's machine. You may replace fields before the agent starts. All functions, and the
// methods of all interfaces, must be safe for concurrent use. A Host serves one agent.
type Host struct {
	// Facts returns the current facts about the machine. Required. The agent calls it for each
	// node status, and at most once a second while pods change. If it returns an error, it must
	// also return all facts that could be read.
	Facts func(context.Context) (Facts, error)
	// Stats measures the node and its pods. If nil, the agent evicts no pods and has no stats
	// summary.
	Stats Stats
	// Cgroups returns the figures for the kubelet's page /metrics/cadvisor: the figures of the
	// machine, of all pods together, and of the given containers and their pods. If nil, the host
	// has no such figures.
	Cgroups func(context.Context, []stats.Container) (stats.Usage, error)
	// Waker requests an eviction evaluation before the next evaluation is due, for example under
	// memory pressure. Optional.
	Waker eviction.Waker
	// ImageFS measures the filesystem of the images. If nil, images are not deleted to free
	// disk space.
	ImageFS imagegc.FS
	// Mounter mounts tmpfs. If nil, emptyDir volumes with medium Memory are directories on the
	// disk, and the agent needs no privileges for volumes.
	Mounter volumes.Mounter
	// Dial connects to pods for probes and hooks, as [net.Dialer.DialContext] does. If nil, the
	// agent uses a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OOM has the sources of OOM kills. If empty, OOM kills are not reported.
	OOM []oomwatch.Source
	// Run does the background work of the other capabilities until ctx is done. For example, it
	// refreshes statistics. It then releases the resources of the capabilities and returns nil.
	// The agent calls Run once. If nil, there is no background work.
	Run func(context.Context) error
}

// Stats measures the node and pods. If a method returns an error, its result still has
// everything that could be measured. The given pods are neither retained nor modified; nil
// entries are ignored. The caller owns the results.
type Stats interface {
	// Node measures the eviction signals of the node. Under pressure, the agent calls it up to
	// 20 times a second.
	Node(ctx context.Context) (eviction.NodeStats, error)
	// Pods returns the statistics that eviction uses, for the given pods. The result omits pods
	// without statistics.
	Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error)
	// Summary returns the kubelet's stats summary of the node and the given pods. If the
	// NodeName of the summary is empty, the agent sets it.
	Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error)
}

// Facts describes a machine. Unknown fields are empty.
type Facts struct {
	// Capacity has the resources cpu, memory and ephemeral-storage, and a resource
	// hugepages-SIZE for each size of huge pages. It does not have the resource pods, which the
	// agent's configuration determines.
	Capacity corev1.ResourceList
	// SwapBytes is the size of the swap space.
	SwapBytes int64
	// Info identifies the machine, its kernel and its operating system. The versions of
	// the agent and of the runtime are empty.
	Info corev1.NodeSystemInfo
	// Addresses has the addresses at which other machines reach this machine, the primary
	// address first.
	Addresses []netip.Addr
	// ResolvConf and Hosts are the contents of the machine's resolv.conf and hosts files.
	ResolvConf, Hosts []byte
	// ResolvConfErr is the error of reading resolv.conf. While it is set, the agent creates no
	// sandbox for a pod that needs the file.
	ResolvConfErr error
	// NoLookups reports whether pods must not use the DNS configuration of the machine, as with
	// an empty resolvConf in the kubelet's configuration. A pod that needs this configuration
	// then can't resolve names.
	NoLookups bool
	// CgroupV2 reports whether the machine has the unified cgroup hierarchy.
	CgroupV2 bool
	// AppArmor and SELinux report whether they are enabled in the kernel. SELinux may be in
	// permissive mode.
	AppArmor, SELinux bool
}
