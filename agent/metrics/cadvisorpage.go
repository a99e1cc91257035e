package metrics

import (
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
)

// cadvisorPage collects the metric families of one response.
type cadvisorPage struct {
	families map[string]*dto.MetricFamily
	series   []figureSeries // the result of cgroupSeries
	now      time.Time
}

// sorted returns the families, sorted by name.
func (p *cadvisorPage) sorted() (all []*dto.MetricFamily) {
	for _, f := range p.families {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// add adds a metric to the family of this name, which it creates if necessary.
func (p *cadvisorPage) add(kind dto.MetricType, name, help string, m *dto.Metric) {
	f := p.families[name]
	if f == nil {
		f = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		p.families[name] = f
	}
	f.Metric = append(f.Metric, m)
}

func (p *cadvisorPage) counter(name, help string, labels []*dto.LabelPair, value float64) {
	p.add(dto.MetricType_COUNTER, name, help, &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &value}})
}

func (p *cadvisorPage) gauge(name, help string, labels []*dto.LabelPair, value float64) {
	p.add(dto.MetricType_GAUGE, name, help, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}})
}

// cgroup adds the series of a cgroup. started is the start time of the cgroup as a Unix time, or 0
// if the time is unknown.
func (p *cadvisorPage) cgroup(g *stats.Cgroup, labels []*dto.LabelPair, started int64) {
	p.gauge("container_last_seen", "Unix time of this response.", labels, float64(p.now.Unix()))
	if started > 0 {
		p.gauge("container_start_time_seconds", "Unix time at which the container started.", labels, float64(started))
	}
	_, hasQuota := g.Figures[stats.CPUQuota]
	for i := range p.series {
		s := &p.series[i]
		n, ok := g.Figures[s.figure]
		if !ok || s.needsQuota && !hasQuota {
			continue
		}
		of := labels
		if len(s.more) > 0 {
			of = with(labels, s.more...)
		}
		if s.isCounter {
			p.counter(s.name, s.help, of, float64(n)/s.unit)
		} else {
			p.gauge(s.name, s.help, of, float64(n)/s.unit)
		}
	}
	for _, d := range g.Devices {
		p.device(d, with(labels, pair("device", d.Device)))
	}
	for _, fs := range g.Filesystems {
		p.filesystem(fs, with(labels, pair("device", fs.Device)))
	}
	for _, i := range g.Interfaces {
		p.network(i, with(labels, pair("interface", i.Name)))
	}
}

func (p *cadvisorPage) device(d stats.DeviceUsage, labels []*dto.LabelPair) {
	p.counter("container_fs_reads_bytes_total", "Bytes read from the device.", labels, float64(d.ReadBytes))
	p.counter("container_fs_reads_total", "Reads from the device.", labels, float64(d.Reads))
	p.counter("container_fs_writes_bytes_total", "Bytes written to the device.", labels, float64(d.WrittenBytes))
	p.counter("container_fs_writes_total", "Writes to the device.", labels, float64(d.Writes))
}

func (p *cadvisorPage) filesystem(fs stats.FilesystemUsage, labels []*dto.LabelPair) {
	p.gauge("container_fs_usage_bytes", "Used bytes of the filesystem, or of the container's writable layer.", labels, float64(fs.UsedBytes))
	p.gauge("container_fs_limit_bytes", "Size of the filesystem.", labels, float64(fs.CapacityBytes))
	p.gauge("container_fs_inodes_total", "Inodes of the filesystem.", labels, float64(fs.Inodes))
	p.gauge("container_fs_inodes_free", "Free inodes of the filesystem.", labels, float64(fs.InodesFree))
}

func (p *cadvisorPage) network(i stats.InterfaceUsage, labels []*dto.LabelPair) {
	p.counter("container_network_receive_bytes_total", "Received bytes.", labels, float64(i.RxBytes))
	p.counter("container_network_receive_errors_total", "Errors while receiving.", labels, float64(i.RxErrors))
	p.counter("container_network_receive_packets_dropped_total", "Dropped packets while receiving.", labels, float64(i.RxDropped))
	p.counter("container_network_receive_packets_total", "Received packets.", labels, float64(i.RxPackets))
	p.counter("container_network_transmit_bytes_total", "Transmitted bytes.", labels, float64(i.TxBytes))
	p.counter("container_network_transmit_errors_total", "Errors while transmitting.", labels, float64(i.TxErrors))
	p.counter("container_network_transmit_packets_dropped_total", "Dropped packets while transmitting.", labels, float64(i.TxDropped))
	p.counter("container_network_transmit_packets_total", "Transmitted packets.", labels, float64(i.TxPackets))
}

// machine adds the series of the machine.
func (p *cadvisorPage) machine(figures map[stats.Figure]uint64, info corev1.NodeSystemInfo) {
	labels := []*dto.LabelPair{pair("boot_id", info.BootID), pair("machine_id", info.MachineID), pair("system_uuid", info.SystemUUID)}
	for _, s := range []struct {
		figure     stats.Figure
		name, help string
	}{
		{stats.Cores, "machine_cpu_cores", "Logical processors."},
		{stats.PhysicalCores, "machine_cpu_physical_cores", "Physical cores."},
		{stats.Sockets, "machine_cpu_sockets", "Processor packages."},
		{stats.MemoryTotal, "machine_memory_bytes", "Memory."},
		{stats.SwapTotal, "machine_swap_bytes", "Swap space."},
	} {
		if n, ok := figures[s.figure]; ok {
			p.gauge(s.name, s.help, labels, float64(n))
		}
	}
}

// figureSeries describes a series whose value is one figure of a cgroup.
type figureSeries struct {
	figure     stats.Figure
	name, help string
	isCounter  bool
	needsQuota bool             // the series only exists if the cgroup has a CPU quota
	unit       float64          // the value is the figure divided by unit
	more       []*dto.LabelPair // labels in addition to those of the cgroup
}

// cgroupSeries returns the series of a cgroup.
func cgroupSeries() []figureSeries {
	const second = float64(time.Second)
	gauge := func(f stats.Figure, name, help string) figureSeries {
		return figureSeries{figure: f, name: "container_" + name, help: help, unit: 1}
	}
	counter := func(f stats.Figure, unit float64, name, help string, more ...*dto.LabelPair) figureSeries {
		return figureSeries{figure: f, name: "container_" + name, help: help, isCounter: true, unit: unit, more: more}
	}
	limited := func(s figureSeries) figureSeries { s.needsQuota = true; return s }
	faults := func(f stats.Figure, kind, scope string) figureSeries {
		return counter(f, 1, "memory_failures_total", "Page faults, by type, and with or without the cgroups below.",
			pair("failure_type", kind), pair("scope", scope))
	}
	return []figureSeries{
		counter(stats.CPUUsage, second, "cpu_usage_seconds_total", "Used CPU time.", pair("cpu", "total")),
		counter(stats.CPUUser, second, "cpu_user_seconds_total", "CPU time used by processes."),
		counter(stats.CPUSystem, second, "cpu_system_seconds_total", "CPU time used by the kernel."),
		limited(counter(stats.CPUPeriods, 1, "cpu_cfs_periods_total", "Periods in which the CPU quota was enforced.")),
		limited(counter(stats.CPUThrottledPeriods, 1, "cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up.")),
		limited(counter(stats.CPUThrottledTime, second, "cpu_cfs_throttled_seconds_total", "Time spent waiting for the next period of the CPU quota.")),
		limited(counter(stats.CPUBursts, 1, "cpu_cfs_burst_periods_total", "Periods in which more than the CPU quota was used.")),
		limited(counter(stats.CPUBurstTime, second, "cpu_cfs_burst_seconds_total", "CPU time used above the CPU quota.")),
		gauge(stats.CPUQuota, "spec_cpu_quota", "CPU time per period, in microseconds."),
		gauge(stats.CPUPeriod, "spec_cpu_period", "Period of the CPU quota, in microseconds."),
		gauge(stats.CPUShares, "spec_cpu_shares", "CPU weight, in shares of cgroup version 1."),

		gauge(stats.MemoryUsage, "memory_usage_bytes", "Memory in use."),
		gauge(stats.MemoryMaxUsage, "memory_max_usage_bytes", "Maximum of the memory in use."),
		gauge(stats.MemoryWorkingSet, "memory_working_set_bytes", "Working set: used memory that can't be reclaimed easily."),
		gauge(stats.MemoryRSS, "memory_rss", "Anonymous memory."),
		gauge(stats.MemoryCache, "memory_cache", "Page cache."),
		gauge(stats.MemoryMappedFile, "memory_mapped_file", "Mapped files."),
		gauge(stats.MemorySwap, "memory_swap", "Swapped memory."),
		gauge(stats.MemoryKernel, "memory_kernel_usage", "Memory of the kernel."),
		gauge(stats.MemoryActiveFile, "memory_total_active_file_bytes", "Active part of the page cache."),
		gauge(stats.MemoryInactiveFile, "memory_total_inactive_file_bytes", "Inactive part of the page cache."),
		counter(stats.MemoryFailures, 1, "memory_failcnt", "How often the memory usage reached the limit."),
		faults(stats.OwnPageFaults, "pgfault", "container"),
		faults(stats.OwnMajorPageFaults, "pgmajfault", "container"),
		faults(stats.PageFaults, "pgfault", "hierarchy"),
		faults(stats.MajorPageFaults, "pgmajfault", "hierarchy"),
		gauge(stats.MemoryLimit, "spec_memory_limit_bytes", "Memory limit, or 0."),
		gauge(stats.MemorySwapLimit, "spec_memory_swap_limit_bytes", "Swap limit (in cgroup version 1 including memory), or 0."),
		gauge(stats.MemoryReservation, "spec_memory_reservation_limit_bytes", "Protected memory, or 0."),

		gauge(stats.Processes, "processes", "Processes of the cgroup itself, without the cgroups below."),
		gauge(stats.Threads, "threads", "Processes and threads."),
		gauge(stats.ThreadsMax, "threads_max", "Limit of processes and threads, or 0."),

		counter(stats.CPUWaiting, second, "pressure_cpu_waiting_seconds_total", "Time in which some tasks waited for the CPU."),
		counter(stats.CPUStalled, second, "pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for the CPU."),
		counter(stats.MemoryWaiting, second, "pressure_memory_waiting_seconds_total", "Time in which some tasks waited for memory."),
		counter(stats.MemoryStalled, second, "pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory."),
		counter(stats.IOWaiting, second, "pressure_io_waiting_seconds_total", "Time in which some tasks waited for block devices."),
		counter(stats.IOStalled, second, "pressure_io_stalled_seconds_total", "Time in which all tasks waited for block devices."),
	}
}
