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

// Host is the machine on which an agent runs. Each field is a capability. Nil means that
// the machine does not have it. [Local] returns the machine of this process. Fields may be
// replaced before the agent starts. All functions and interfaces are called concurrently.
// A Host serves one agent.
type Host struct {
	// Facts returns the present facts about the machine. Required. The agent calls it for
	// each node status, and at most once a second while pods change. Beside an error the facts
	// still have everything that could be read.
	Facts func(context.Context) (Facts, error)
	// Stats measures the node and its pods. Nil: no eviction threshold is ever met, and the
	// agent has no stats summary.
	Stats Stats
	// Waker reports pressure before the next measurement is due. Optional.
	Waker eviction.Waker
	// ImageFS measures the filesystem of the images. Nil: images are not deleted to free
	// space.
	ImageFS imagegc.FS
	// Mounter mounts tmpfs. Nil: emptyDir volumes with medium Memory are on the disk, and
	// volumes need no privileges.
	Mounter volumes.Mounter
	// Dial connects to pods for probes and hooks, as [net.Dialer.DialContext] does. Nil: the
	// network of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OOM are the sources that report OOM kills of the kernel. Empty: none is reported.
	OOM []oomwatch.Source
	// Run does what the other capabilities need in the background, such as refreshing
	// statistics, until ctx is done. It then releases what they hold and returns nil. The
	// agent calls it once. Nil: the capabilities need nothing.
	Run func(context.Context) error
}

// Stats measures the node and pods. Beside an error a result still has everything that
// could be measured. The given pods are neither retained nor modified, and nil entries are
// ignored. Results belong to the caller.
type Stats interface {
	// Node measures the eviction signals of the node. The agent calls it up to 20 times a
	// second under pressure.
	Node(ctx context.Context) (eviction.NodeStats, error)
	// Pods measures what eviction compares of the given pods. A pod without figures is
	// missing in the result.
	Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error)
	// Summary returns the kubelet's stats summary of the node and the given pods. The
	// agent sets an empty NodeName.
	Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error)
}

// Facts describe a machine. Unknown fields are empty.
type Facts struct {
	// Capacity has cpu, memory, ephemeral-storage and a hugepages-SIZE resource for each
	// size of huge pages. It does not have pods: their number is the agent's policy.
	Capacity corev1.ResourceList
	// SwapBytes is the size of the swap space.
	SwapBytes int64
	// Info identifies the machine, its kernel and its operating system. The versions of
	// the agent and of the runtime are empty.
	Info corev1.NodeSystemInfo
	// Addresses are the addresses at which others reach the machine, the primary one first.
	Addresses []netip.Addr
	// ResolvConf and Hosts are the contents of the machine's resolv.conf and hosts files.
	ResolvConf, Hosts []byte
	// ResolvConfErr is the reason why resolv.conf could not be read. While it is set, no
	// sandbox is created for a pod that needs the file.
	ResolvConfErr error
	// NoLookups reports that the kubelet's resolvConf is empty: pods with the machine's
	// DNS configuration do not resolve names.
	NoLookups bool
	// CgroupV2 reports that the machine has the unified cgroup hierarchy.
	CgroupV2 bool
	// AppArmor and SELinux report that the kernel has them enabled. SELinux may be
	// permissive.
	AppArmor, SELinux bool
}
