package stats

import (
	"bytes"
	"path/filepath"
	"strings"
)

// processors returns the numbers of processors, cores and packages. It reads /proc/cpuinfo only
// once: the numbers rarely change, and in each read the kernel asks every processor for its
// frequency.
func (p *Provider) processors() map[Figure]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cores == nil {
		var buf []byte
		text, _ := readFile(filepath.Join(p.cfg.ProcRoot, "cpuinfo"), &buf) // an error leaves the figures unknown
		p.cores = parseProcessors(text)
	}
	return p.cores
}

// parseProcessors parses /proc/cpuinfo. On some architectures, the file has no packages and cores.
func parseProcessors(text []byte) map[Figure]uint64 {
	var processors uint64
	packages, cores := map[string]bool{}, map[string]bool{}
	current := ""
	for line := range bytes.Lines(text) {
		key, v, _ := bytes.Cut(line, []byte(":"))
		switch string(bytes.TrimSpace(key)) {
		case "processor":
			processors++
		case "physical id":
			current = string(bytes.TrimSpace(v))
			packages[current] = true
		case "core id":
			cores[current+"/"+string(bytes.TrimSpace(v))] = true
		}
	}
	all := map[Figure]uint64{}
	for f, n := range map[Figure]uint64{Cores: processors, Sockets: uint64(len(packages)), PhysicalCores: uint64(len(cores))} {
		if n > 0 {
			all[f] = n
		}
	}
	return all
}

// root adds the root cgroup and sets the machine's figures. paths are on the node's filesystems.
func (r *usageReader) root(paths []string) {
	g := Cgroup{Path: "/", Interfaces: r.interfaces("self")}
	for _, path := range paths {
		fs, ok := r.filesystem(path)
		for _, other := range g.Filesystems {
			ok = ok && other.Device != fs.Device
		}
		if ok {
			g.Filesystems = append(g.Filesystems, fs)
		}
	}
	r.add(g)
	if len(r.out.Cgroups) == 0 {
		r.out.Cgroups = []Cgroup{g}
		return
	}
	r.g = &r.out.Cgroups[0]
	r.readPressure(func(resource string) string { return filepath.Join(r.proc, "pressure", resource) })
	r.set(StartTime, parseKey(r.procFile("stat"), "btime"))
	m := parseMeminfo(r.procFile("meminfo"))
	r.set(MemoryLimit, m.total)
	r.set(MemorySwapLimit, m.swapTotal)
	if r.v2 { // the root cgroup has no files for the following figures
		usage := r.known(MemoryRSS).plus(r.known(MemoryCache))
		r.set(MemoryUsage, usage)
		r.set(MemoryWorkingSet, usage.minus(r.known(MemoryInactiveFile)))
		r.set(MemorySwap, m.swapTotal.minus(m.swapFree))
	}
	for f, v := range map[Figure]value{MemoryTotal: m.total, SwapTotal: m.swapTotal} {
		if v.ok {
			r.out.Machine[f] = v.n
		}
	}
}

// procFile returns the content of a file of proc, which is valid until the next call. It returns
// nil if the file can't be read.
func (r *usageReader) procFile(name ...string) []byte {
	b, err := readFile(filepath.Join(append([]string{r.proc}, name...)...), &r.buf)
	if err != nil {
		return nil
	}
	return b
}

func (r *usageReader) readMounts() { r.mounts = parseMounts(r.procFile("self", "mountinfo")) }

// filesystem measures the filesystem that contains a path. It returns false if the filesystem
// can't be measured.
func (r *usageReader) filesystem(path string) (FilesystemUsage, bool) {
	u, err := statfs(path)
	if path == "" || err != nil {
		return FilesystemUsage{}, false
	}
	m := mountOf(path, r.mounts)
	if m.source == "" {
		m.source = path
	}
	return FilesystemUsage{
		Device: m.source, UsedBytes: u.used.n, CapacityBytes: u.capacity.n, Inodes: u.inodes.n, InodesFree: u.inodesFree.n,
	}, true
}

// interfaces returns the interfaces that a process sees. Like cAdvisor, it leaves out loopback, the
// host's ends of the pods' veth pairs, and the bridges of Docker and nerdctl.
func (r *usageReader) interfaces(process string) (all []InterfaceUsage) {
	for line := range bytes.Lines(r.procFile(process, "net", "dev")) {
		left, counters, ok := bytes.Cut(line, []byte(":"))
		field, name := bytes.Fields(counters), string(bytes.TrimSpace(left))
		if !ok || len(field) < 12 || name == "lo" || hasAnyPrefix(name, "veth", "docker", "nerdctl") {
			continue
		}
		n := func(i int) uint64 { return number(field[i]).n }
		all = append(all, InterfaceUsage{
			Name: name, RxBytes: n(0), RxPackets: n(1), RxErrors: n(2), RxDropped: n(3),
			TxBytes: n(8), TxPackets: n(9), TxErrors: n(10), TxDropped: n(11),
		})
	}
	return all
}

func hasAnyPrefix(text string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}
