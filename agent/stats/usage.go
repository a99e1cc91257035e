package stats

import "k8s.io/apimachinery/pkg/types"

// Usage has the figures of the machine and of its cgroups, as cAdvisor collects them.
type Usage struct {
	// Machine has the figures of the machine.
	Machine map[Figure]uint64
	// Cgroups has the root cgroup, the cgroup of all pods, the cgroups of the QoS classes, and
	// the cgroups of the requested pods and containers.
	Cgroups []Cgroup
}

// Container is a container or a sandbox whose cgroup [Provider.Cgroups] reads.
type Container struct {
	// ID is the container's ID in the runtime.
	ID string
	// Pod is the UID of the container's pod.
	Pod types.UID
	// IsSandbox means that ID is the ID of a sandbox. Only sandboxes have interfaces, because
	// all containers of a pod share the network of the sandbox.
	IsSandbox bool
}

// Cgroup has the figures of a cgroup, including the cgroups below it. A figure that can't be
// read is missing.
type Cgroup struct {
	// Path is the path below CgroupRoot, such as /kubepods/burstable/podUID. It is the same for
	// all controllers of cgroup version 1.
	Path string
	// Pod is the UID of the pod. It is empty for the cgroups above the cgroups of pods.
	Pod types.UID
	// ContainerID is the ID of the container or the sandbox. It is empty for other cgroups.
	ContainerID string
	// Figures has all figures that consist of one number.
	Figures map[Figure]uint64
	// Devices has the reads and writes of block devices. Cgroup version 1 only counts them for
	// devices with the scheduler bfq or with a throttle.
	Devices []DeviceUsage
	// Interfaces has the counters of the network interfaces, for the root cgroup and for
	// sandboxes. The sandbox of a pod in the host's network has the interfaces of the host.
	Interfaces []InterfaceUsage
	// Filesystems has the node's filesystems for the root cgroup. For a container, it has the
	// writable layer, with the layer's size at the last refresh.
	Filesystems []FilesystemUsage
}

// DeviceUsage counts what the processes of a cgroup have read from a block device and written to
// it.
type DeviceUsage struct {
	// Device is the path of the device, such as /dev/sda, or MAJOR:MINOR if the path is unknown.
	Device                                 string
	ReadBytes, WrittenBytes, Reads, Writes uint64
}

// InterfaceUsage has the counters of a network interface.
type InterfaceUsage struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// FilesystemUsage has the usage and the size of a filesystem. Inodes and InodesFree are 0 if the
// filesystem does not limit inodes.
type FilesystemUsage struct {
	Device                   string
	UsedBytes, CapacityBytes uint64
	Inodes, InodesFree       uint64
}

// Figure identifies a number in [Usage]. Times are in nanoseconds and memory is in bytes, unless
// the figure's comment has another unit.
type Figure uint8

// Figures of a cgroup and, from Cores on, of the machine. A figure that counts is never reset while
// the cgroup exists.
const (
	// CPUUsage is the used CPU time. CPUUser is the part in user mode, CPUSystem the part in the
	// kernel.
	CPUUsage Figure = iota
	CPUUser
	CPUSystem
	// CPUPeriods counts the periods of the CPU quota in which the cgroup had something to run.
	// CPUThrottledPeriods counts the periods in which the cgroup used up its quota.
	// CPUThrottledTime is how long the cgroup then waited.
	CPUPeriods
	CPUThrottledPeriods
	CPUThrottledTime
	// CPUBursts counts the periods in which the cgroup used more than its quota, and
	// CPUBurstTime is the CPU time above the quota.
	CPUBursts
	CPUBurstTime
	// CPUQuota is the CPU time per CPUPeriod, both in microseconds. CPUQuota is missing if the
	// cgroup has no quota.
	CPUQuota
	CPUPeriod
	// CPUShares is the CPU weight in shares of cgroup version 1. A weight of version 2 is
	// converted as in cAdvisor, by the inverse of the formula that older runtimes use.
	CPUShares

	// MemoryUsage is the memory in use, MemoryMaxUsage its highest value.
	MemoryUsage
	MemoryMaxUsage
	// MemoryWorkingSet is MemoryUsage minus MemoryInactiveFile.
	MemoryWorkingSet
	// MemoryRSS is the anonymous memory, MemoryCache the page cache, which includes tmpfs.
	MemoryRSS
	MemoryCache
	// MemoryMappedFile is the part of the page cache that processes have mapped.
	MemoryMappedFile
	// MemorySwap is the swapped memory.
	MemorySwap
	// MemoryKernel is the memory that the kernel uses for the cgroup.
	MemoryKernel
	// MemoryActiveFile and MemoryInactiveFile are parts of the page cache.
	MemoryActiveFile
	MemoryInactiveFile
	// MemoryFailures counts how often the usage reached the limit. Version 1 counts nothing if the
	// limit of memory equals the limit of memory and swap together. Runtimes set equal limits if
	// swap accounting is enabled on the node.
	MemoryFailures
	// MemoryLimit is the limit of memory. MemorySwapLimit is the limit of swap in version 2, and of
	// memory and swap together in version 1. MemoryReservation is the protected memory in version 2,
	// and the soft limit in version 1. Each of the three is 0 without a limit. The limits of the root
	// cgroup are the sizes of memory and swap.
	MemoryLimit
	MemorySwapLimit
	MemoryReservation
	// PageFaults and MajorPageFaults count page faults, including those of the cgroups below. In
	// version 1, OwnPageFaults and OwnMajorPageFaults only count page faults of the cgroup itself.
	// In version 2, they equal PageFaults and MajorPageFaults.
	OwnPageFaults
	OwnMajorPageFaults
	PageFaults
	MajorPageFaults

	// Processes is the number of processes in the cgroup itself, without the cgroups below.
	Processes
	// Threads is the number of processes and threads. ThreadsMax is the limit of Threads, or 0
	// without a limit.
	Threads
	ThreadsMax

	// The following figures are the times in which processes of the cgroup waited for the CPU, for
	// memory, and for block devices. Waiting means that some processes waited. Stalled means that
	// all processes waited. In version 1, only the root cgroup has them.
	CPUWaiting
	CPUStalled
	MemoryWaiting
	MemoryStalled
	IOWaiting
	IOStalled

	// StartTime is when the machine started, as a Unix time in seconds. Only the root cgroup has
	// it, because the kernel does not report when it created a cgroup.
	StartTime

	// Cores, PhysicalCores and Sockets are the numbers of the machine's logical processors,
	// cores and processor packages. Some architectures do not report cores and packages.
	Cores
	PhysicalCores
	Sockets
	// MemoryTotal and SwapTotal are the sizes of the machine's memory and swap.
	MemoryTotal
	SwapTotal
)
