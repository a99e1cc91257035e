package stats

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/eviction"
)

// pod returns the summary of a pod. Its sources are the measurements m, the pod's cgroup if
// the path is not empty, and the runtime's statistics of the sandbox and the containers.
func (s *summarizer) pod(pod *corev1.Pod, m eviction.PodStats, sandbox *runtimeapi.LinuxPodSandboxStats, cgroup string) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		StartTime:  podStart(pod),
		Containers: []statsapi.ContainerStats{},
		Network:    criNetwork(sandbox.GetNetwork()),
	}
	if cgroup != "" {
		out.CPU, out.Memory = s.cpu(cgroup), s.memory(cgroup)
		out.IO = s.io(s.reader.pressure(cgroup, "io"))
		memory := cgroupMemory{usage: fromPtr(out.Memory.UsageBytes)}
		out.Swap = &statsapi.SwapStats{Time: s.now, SwapUsageBytes: s.reader.swap(cgroup, memory).ptr()}
	} else {
		out.CPU, out.Memory = s.criCPU(string(pod.UID), sandbox.GetCpu()), criMemory(sandbox.GetMemory())
	}
	processes := number64(sandbox.GetProcess().GetProcessCount())
	if m.Processes.Known() {
		processes = unsigned(m.Processes)
	}
	if processes != nil {
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: processes}
	}
	total := m.Other
	for _, v := range m.Volumes {
		out.VolumeStats = append(out.VolumeStats, statsapi.VolumeStats{Name: v.Name, FsStats: *s.disk(s.nodeFS, v.DiskUsage)})
		if onDisk(pod, v.Name) {
			total = sum(total, v.DiskUsage)
		}
	}
	for _, c := range m.Containers {
		total = sum(total, sum(c.Rootfs, c.Logs))
	}
	if total.Bytes.Known() || total.Inodes.Known() {
		out.EphemeralStorage = s.disk(s.nodeFS, total)
	}
	s.containers(&out, pod, m)
	if out.CPU == nil { // some runtimes only report usage for sandboxes with a cgroup
		out.CPU = containersCPU(out.Containers)
	}
	if out.Memory == nil {
		out.Memory = containersMemory(out.Containers)
	}
	return out
}

// containersCPU adds the known values of containers. It returns nil if no container has CPU
// figures. The time of the sum is the time of the oldest figure.
func containersCPU(containers []statsapi.ContainerStats) (sum *statsapi.CPUStats) {
	for _, c := range containers {
		if c.CPU == nil {
			continue
		}
		if sum == nil {
			sum = &statsapi.CPUStats{Time: c.CPU.Time}
		}
		sum.Time = older(sum.Time, c.CPU.Time)
		addTo(&sum.UsageNanoCores, c.CPU.UsageNanoCores)
		addTo(&sum.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
	}
	return sum
}

// containersMemory adds the known values of containers. It returns nil if no container has
// memory figures. Available memory is missing, because a sum of available amounts has no
// meaning.
func containersMemory(containers []statsapi.ContainerStats) (sum *statsapi.MemoryStats) {
	for _, c := range containers {
		if c.Memory == nil {
			continue
		}
		if sum == nil {
			sum = &statsapi.MemoryStats{Time: c.Memory.Time}
		}
		sum.Time = older(sum.Time, c.Memory.Time)
		addTo(&sum.UsageBytes, c.Memory.UsageBytes)
		addTo(&sum.WorkingSetBytes, c.Memory.WorkingSetBytes)
		addTo(&sum.RSSBytes, c.Memory.RSSBytes)
		addTo(&sum.PageFaults, c.Memory.PageFaults)
		addTo(&sum.MajorPageFaults, c.Memory.MajorPageFaults)
	}
	return sum
}

func older(a, b metav1.Time) metav1.Time {
	if b.Before(&a) {
		return b
	}
	return a
}

// addTo adds n to *sum if n is known.
func addTo(sum **uint64, n *uint64) {
	if n != nil {
		*sum = fromPtr(*sum).or(known(0)).plus(known(*n)).ptr()
	}
}

// onDisk reports whether a volume's data is on the node's disk and is deleted with the pod, by
// the rules of package eviction. It returns false for a volume that is not in the pod's spec.
func onDisk(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name == name {
			return v.ConfigMap != nil || v.GitRepo != nil || v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault
		}
	}
	return false
}

// containers adds the running containers to out. If several containers have the same name, it
// adds the newest attempt.
func (s *summarizer) containers(out *statsapi.PodStats, pod *corev1.Pod, m eviction.PodStats) {
	s.p.mu.Lock()
	reported := s.p.runtime.containers[pod.UID]
	s.p.mu.Unlock()
	last := map[string]*runtimeapi.ContainerStats{}
	var names []string
	for _, c := range reported {
		meta := c.GetAttributes().GetMetadata()
		if c.GetCpu() == nil && c.GetMemory() == nil {
			continue // the container has exited
		}
		before, ok := last[meta.GetName()]
		if !ok {
			names = append(names, meta.GetName())
		}
		if !ok || meta.GetAttempt() >= before.GetAttributes().GetMetadata().GetAttempt() {
			last[meta.GetName()] = c
		}
	}
	for _, name := range names {
		c := last[name]
		stats := statsapi.ContainerStats{
			Name: name, StartTime: containerStart(pod, name),
			CPU: s.criCPU(c.GetAttributes().GetId(), c.GetCpu()), Memory: criMemory(c.GetMemory()),
			Rootfs: s.disk(s.writeFS, containerStats(c).Rootfs), Swap: criSwap(c.GetSwap()),
		}
		if psi := criPSI(c.GetIo().GetPsi()); psi != nil {
			stats.IO = &statsapi.IOStats{Time: nanoTime(c.GetIo().GetTimestamp()), PSI: psi}
		}
		for _, measured := range m.Containers {
			if measured.Name == name && measured.Logs.Bytes.Known() {
				stats.Logs = s.disk(s.nodeFS, measured.Logs)
			}
		}
		out.Containers = append(out.Containers, stats)
	}
}

// disk returns the disk usage u with the figures of the filesystem fs.
func (s *summarizer) disk(fs *fsUsage, u eviction.DiskUsage) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: s.now, UsedBytes: unsigned(u.Bytes), InodesUsed: unsigned(u.Inodes)}
	if u.Bytes.Known() {
		out.Time = metav1.NewTime(u.Bytes.Time)
	}
	if fs != nil {
		out.AvailableBytes, out.CapacityBytes = fs.available.ptr(), fs.capacity.ptr()
		out.InodesFree, out.Inodes = fs.inodesFree.ptr(), fs.inodes.ptr()
	}
	return out
}

func unsigned(u eviction.Usage) *uint64 {
	if !u.Known() {
		return nil
	}
	return known(uint64(max(u.Value, 0))).ptr()
}

func podStart(pod *corev1.Pod) metav1.Time {
	if pod.Status.StartTime != nil {
		return *pod.Status.StartTime
	}
	return pod.CreationTimestamp
}

// containerStart returns when the container started, according to the pod's status. If the status
// does not show that the container is running, or if the container is an ephemeral container,
// containerStart returns the pod's start time.
func containerStart(pod *corev1.Pod, name string) metav1.Time {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if r := statuses[i].State.Running; statuses[i].Name == name && r != nil {
				return r.StartedAt
			}
		}
	}
	return podStart(pod)
}

func nanoTime(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }

// criCPU converts the runtime's CPU figures. If the runtime reports no rate, criCPU calculates the
// rate from the recorded samples with the given key.
func (s *summarizer) criCPU(key string, c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if c == nil {
		return nil
	}
	out := &statsapi.CPUStats{
		Time: nanoTime(c.GetTimestamp()), UsageCoreNanoSeconds: number64(c.GetUsageCoreNanoSeconds()),
		UsageNanoCores: number64(c.GetUsageNanoCores()), PSI: criPSI(c.GetPsi()),
	}
	if out.UsageNanoCores == nil && out.UsageCoreNanoSeconds != nil {
		out.UsageNanoCores = s.rate(key, out.Time.Time, *out.UsageCoreNanoSeconds)
	}
	return out
}

func criMemory(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: nanoTime(m.GetTimestamp()), AvailableBytes: number64(m.GetAvailableBytes()),
		UsageBytes: number64(m.GetUsageBytes()), WorkingSetBytes: number64(m.GetWorkingSetBytes()),
		RSSBytes: number64(m.GetRssBytes()), PageFaults: number64(m.GetPageFaults()),
		MajorPageFaults: number64(m.GetMajorPageFaults()), PSI: criPSI(m.GetPsi()),
	}
}

func criSwap(v *runtimeapi.SwapUsage) *statsapi.SwapStats {
	if v == nil {
		return nil
	}
	return &statsapi.SwapStats{
		Time: nanoTime(v.GetTimestamp()), SwapAvailableBytes: number64(v.GetSwapAvailableBytes()),
		SwapUsageBytes: number64(v.GetSwapUsageBytes()),
	}
}

func criPSI(p *runtimeapi.PsiStats) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsapi.PSIStats{Full: data(p.GetFull()), Some: data(p.GetSome())}
}

func criNetwork(n *runtimeapi.NetworkUsage) *statsapi.NetworkStats {
	if n == nil {
		return nil
	}
	one := func(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
		return statsapi.InterfaceStats{
			Name: i.GetName(), RxBytes: number64(i.GetRxBytes()), RxErrors: number64(i.GetRxErrors()),
			TxBytes: number64(i.GetTxBytes()), TxErrors: number64(i.GetTxErrors()),
		}
	}
	out := &statsapi.NetworkStats{Time: nanoTime(n.GetTimestamp()), InterfaceStats: one(n.GetDefaultInterface())}
	if n.GetDefaultInterface() != nil {
		out.Interfaces = append(out.Interfaces, out.InterfaceStats)
	}
	for _, i := range n.GetInterfaces() {
		out.Interfaces = append(out.Interfaces, one(i))
	}
	return out
}
