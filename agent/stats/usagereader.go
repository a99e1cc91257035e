package stats

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
)

// usageReader reads the figures of [Usage].
type usageReader struct {
	cgroupReader
	proc    string
	mounts  []mount
	devices map[string]string // paths of block devices, by MAJOR:MINOR; nil before the first use
	out     Usage
	g       *Cgroup // the cgroup that is being read
}

// text returns the content of a cgroup's file, which is valid until the next call. It returns nil
// if the file can't be read: the cgroup was removed, the controller is disabled, or the kernel
// does not have the file.
func (r *usageReader) text(controller, name string) []byte {
	b, err := readFile(r.file(controller, r.g.Path, name), &r.buf)
	if err != nil {
		return nil
	}
	return b
}

// set sets a figure if its value is known.
func (r *usageReader) set(f Figure, v value) {
	if v.ok {
		r.g.Figures[f] = v.n
	}
}

// known returns a figure that was set before.
func (r *usageReader) known(f Figure) value {
	n, ok := r.g.Figures[f]
	return value{n, ok}
}

// setKeys sets the figures of a file whose lines have a key and a number.
func (r *usageReader) setKeys(text []byte, figureOf func(key string) (f Figure, factor uint64)) {
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		key, rest := cutWord(line)
		if f, factor := figureOf(string(key)); factor != 0 {
			r.set(f, number(rest).times(factor))
		}
	}
}

// limit returns the number in the file of a limit, or 0 if there is no limit.
func limit(text []byte) value {
	if word, _ := cutWord(text); string(word) == "max" {
		return known(0)
	}
	v := number(text)
	if v.ok && v.n >= 1<<62 { // how version 1 writes that there is no limit
		return known(0)
	}
	return v
}

// add reads a cgroup and appends it to the result. It returns the ID of a process of the cgroup,
// or an empty string if the cgroup has no process in this PID namespace.
func (r *usageReader) add(g Cgroup) (process string) {
	g.Figures = make(map[Figure]uint64, 48)
	r.g = &g
	if r.v2 {
		r.readV2()
	} else {
		r.readV1()
	}
	r.set(MemoryWorkingSet, r.known(MemoryUsage).minus(r.known(MemoryInactiveFile)))
	r.set(Threads, number(r.text("pids", "pids.current")))
	r.set(ThreadsMax, limit(r.text("pids", "pids.max")))
	if text := r.text("cpu", "cgroup.procs"); text != nil {
		r.set(Processes, known(uint64(bytes.Count(text, []byte("\n")))))
		first, _ := cutWord(text)
		process = string(first)
	}
	if process == "0" { // the processes are not in this PID namespace
		process = ""
	}
	if len(g.Figures) > 0 { // the cgroup was not removed in the meantime
		r.out.Cgroups = append(r.out.Cgroups, g)
	}
	return process
}

func (r *usageReader) readV2() {
	r.setKeys(r.text("", "cpu.stat"), cpuKeyV2)
	quota, period := cutWord(r.text("", "cpu.max"))
	r.set(CPUQuota, number(quota)) // unknown for "max"
	r.set(CPUPeriod, number(period))
	if weight := number(r.text("", "cpu.weight")); weight.ok && weight.n > 0 {
		r.set(CPUShares, known(2+(weight.n-1)*262142/9999))
	}
	r.setKeys(r.text("", "memory.stat"), memoryKeyV2)
	r.set(MemoryUsage, number(r.text("", "memory.current")))
	r.set(MemoryMaxUsage, number(r.text("", "memory.peak")))
	r.set(MemorySwap, number(r.text("", "memory.swap.current")))
	r.set(MemoryFailures, parseKey(r.text("", "memory.events"), "max"))
	r.set(MemoryLimit, limit(r.text("", "memory.max")))
	r.set(MemorySwapLimit, limit(r.text("", "memory.swap.max")))
	r.set(MemoryReservation, limit(r.text("", "memory.min")))
	r.set(OwnPageFaults, r.known(PageFaults))
	r.set(OwnMajorPageFaults, r.known(MajorPageFaults))
	r.readDevicesV2(r.text("", "io.stat"))
	if r.g.Path != "/" {
		r.readPressure(func(resource string) string { return r.file("", r.g.Path, resource+".pressure") })
	}
}

func cpuKeyV2(key string) (f Figure, factor uint64) {
	const microsecond = 1000
	switch key {
	case "usage_usec":
		return CPUUsage, microsecond
	case "user_usec":
		return CPUUser, microsecond
	case "system_usec":
		return CPUSystem, microsecond
	case "throttled_usec":
		return CPUThrottledTime, microsecond
	case "burst_usec":
		return CPUBurstTime, microsecond
	case "nr_periods":
		return CPUPeriods, 1
	case "nr_throttled":
		return CPUThrottledPeriods, 1
	case "nr_bursts":
		return CPUBursts, 1
	}
	return 0, 0
}

func memoryKeyV2(key string) (f Figure, factor uint64) {
	switch key {
	case "anon":
		return MemoryRSS, 1
	case "file":
		return MemoryCache, 1
	case "kernel":
		return MemoryKernel, 1
	case "file_mapped":
		return MemoryMappedFile, 1
	case "active_file":
		return MemoryActiveFile, 1
	case "inactive_file":
		return MemoryInactiveFile, 1
	case "pgfault":
		return PageFaults, 1
	case "pgmajfault":
		return MajorPageFaults, 1
	}
	return 0, 0
}

func (r *usageReader) readV1() {
	r.set(CPUUsage, number(r.text("cpuacct", "cpuacct.usage")))
	r.setKeys(r.text("cpuacct", "cpuacct.stat"), cpuKeyV1)
	r.setKeys(r.text("cpu", "cpu.stat"), cpuKeyV1)
	r.set(CPUQuota, number(r.text("cpu", "cpu.cfs_quota_us"))) // unknown for -1
	r.set(CPUPeriod, number(r.text("cpu", "cpu.cfs_period_us")))
	r.set(CPUShares, number(r.text("cpu", "cpu.shares")))
	r.setKeys(r.text("memory", "memory.stat"), memoryKeyV1)
	r.set(MemoryUsage, number(r.text("memory", "memory.usage_in_bytes")))
	r.set(MemoryMaxUsage, number(r.text("memory", "memory.max_usage_in_bytes")))
	r.set(MemoryKernel, number(r.text("memory", "memory.kmem.usage_in_bytes")))
	r.set(MemoryFailures, number(r.text("memory", "memory.failcnt")))
	r.set(MemoryLimit, limit(r.text("memory", "memory.limit_in_bytes")))
	r.set(MemorySwapLimit, limit(r.text("memory", "memory.memsw.limit_in_bytes")))
	r.set(MemoryReservation, limit(r.text("memory", "memory.soft_limit_in_bytes")))
	r.readDevicesV1("blkio.throttle")
	if len(r.g.Devices) == 0 {
		r.readDevicesV1("blkio.bfq")
	}
}

func cpuKeyV1(key string) (f Figure, factor uint64) {
	const tick = 10_000_000 // a hundredth of a second, whatever the kernel's configuration is
	switch key {
	case "user":
		return CPUUser, tick
	case "system":
		return CPUSystem, tick
	case "nr_periods":
		return CPUPeriods, 1
	case "nr_throttled":
		return CPUThrottledPeriods, 1
	case "throttled_time":
		return CPUThrottledTime, 1
	case "nr_bursts":
		return CPUBursts, 1
	case "burst_time":
		return CPUBurstTime, 1
	}
	return 0, 0
}

func memoryKeyV1(key string) (f Figure, factor uint64) {
	switch key {
	case "total_rss":
		return MemoryRSS, 1
	case "total_cache":
		return MemoryCache, 1
	case "total_mapped_file":
		return MemoryMappedFile, 1
	case "total_swap":
		return MemorySwap, 1
	case "total_active_file":
		return MemoryActiveFile, 1
	case "total_inactive_file":
		return MemoryInactiveFile, 1
	case "pgfault":
		return OwnPageFaults, 1
	case "pgmajfault":
		return OwnMajorPageFaults, 1
	case "total_pgfault":
		return PageFaults, 1
	case "total_pgmajfault":
		return MajorPageFaults, 1
	}
	return 0, 0
}

// readPressure reads the pressure of each resource from the file that fileOf returns.
func (r *usageReader) readPressure(fileOf func(resource string) string) {
	for _, p := range []struct {
		resource         string
		waiting, stalled Figure
	}{
		{"cpu", CPUWaiting, CPUStalled}, {"memory", MemoryWaiting, MemoryStalled}, {"io", IOWaiting, IOStalled},
	} {
		if psi := r.pressureAt(fileOf(p.resource)); psi != nil {
			r.g.Figures[p.waiting], r.g.Figures[p.stalled] = psi.Some.Total, psi.Full.Total
		}
	}
}

// device returns the entry of the device MAJOR:MINOR in the cgroup that is being read.
func (r *usageReader) device(number []byte) *DeviceUsage {
	name := r.deviceName(string(number))
	at := slices.IndexFunc(r.g.Devices, func(d DeviceUsage) bool { return d.Device == name })
	if at < 0 {
		at = len(r.g.Devices)
		r.g.Devices = append(r.g.Devices, DeviceUsage{Device: name})
	}
	return &r.g.Devices[at]
}

// deviceName returns the path of the block device MAJOR:MINOR. The first call reads the list of
// devices. It uses a separate buffer, because the caller still uses r.buf.
func (r *usageReader) deviceName(number string) string {
	if r.devices == nil {
		r.devices = map[string]string{}
		var buf []byte
		text, _ := readFile(filepath.Join(r.proc, "diskstats"), &buf) // an error leaves names unknown
		for line := range bytes.Lines(text) {
			if field := bytes.Fields(line); len(field) > 2 {
				r.devices[string(field[0])+":"+string(field[1])] = "/dev/" + string(field[2])
			}
		}
	}
	if name, ok := r.devices[number]; ok {
		return name
	}
	return number
}

// readDevicesV2 reads lines of the form "8:0 rbytes=1 wbytes=2 rios=3 wios=4".
func (r *usageReader) readDevicesV2(text []byte) {
	for line := range bytes.Lines(text) {
		device, rest := cutWord(line)
		for len(bytes.TrimSpace(rest)) > 0 {
			var word []byte
			word, rest = cutWord(rest)
			key, n, _ := bytes.Cut(word, []byte("="))
			v := number(n)
			if !v.ok {
				continue
			}
			switch string(key) {
			case "rbytes":
				r.device(device).ReadBytes = v.n
			case "wbytes":
				r.device(device).WrittenBytes = v.n
			case "rios":
				r.device(device).Reads = v.n
			case "wios":
				r.device(device).Writes = v.n
			}
		}
	}
}

// readDevicesV1 reads the two files of a policy, with lines of the form "8:0 Read 1".
func (r *usageReader) readDevicesV1(policy string) {
	for _, file := range []string{"io_service_bytes_recursive", "io_serviced_recursive"} {
		for line := range bytes.Lines(r.text("blkio", policy+"."+file)) {
			device, rest := cutWord(line)
			operation, rest := cutWord(rest)
			v := number(rest)
			if !v.ok {
				continue // the line with the total of all devices
			}
			countBytes := strings.HasPrefix(file, "io_service_bytes")
			switch string(operation) {
			case "Read":
				d := r.device(device)
				if countBytes {
					d.ReadBytes = v.n
				} else {
					d.Reads = v.n
				}
			case "Write":
				d := r.device(device)
				if countBytes {
					d.WrittenBytes = v.n
				} else {
					d.Writes = v.n
				}
			}
		}
	}
}
