package stats

import (
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// hierarchy is the location of cgroups: one tree in version 2, one tree per controller in
// version 1.
type hierarchy struct {
	root string
	v2   bool
}

// hierarchyAt returns the hierarchy at root with its version.
func hierarchyAt(root string) hierarchy {
	return hierarchy{root, exists(filepath.Join(root, "cgroup.controllers"))}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// file returns the path of a cgroup's file. The controller is only used in version 1.
func (h hierarchy) file(controller, cgroup, name string) string {
	if h.v2 {
		return filepath.Join(h.root, cgroup, name)
	}
	return filepath.Join(h.root, controller, cgroup, name)
}

// has reports whether a cgroup exists.
func (h hierarchy) has(cgroup string) bool { return exists(h.file("memory", cgroup, "")) }

// findPods returns the cgroup of all pods. If no cgroup is configured, findPods tries the default
// names of the kubelet's systemd driver and of its cgroupfs driver. The result is empty if the
// cgroup does not exist.
func (h hierarchy) findPods(configured string) string {
	candidates := []string{"/kubepods.slice", "/kubepods"}
	if configured != "" {
		candidates = []string{configured}
	}
	for _, cgroup := range candidates {
		if h.has(cgroup) {
			return cgroup
		}
	}
	return ""
}

// podCgroups returns the possible paths of a pod's cgroup below the cgroup of all pods: the kubelet
// uses one path for each QoS class. In the names of the systemd driver, dashes separate levels, and
// each name contains the names of its parents. So underscores replace the dashes of the UID.
func podCgroups(pods string, uid types.UID) []string {
	if base, ok := strings.CutSuffix(filepath.Base(pods), ".slice"); ok {
		name := "-pod" + strings.ReplaceAll(string(uid), "-", "_") + ".slice"
		burstable, bestEffort := base+"-burstable", base+"-besteffort"
		return []string{
			filepath.Join(pods, burstable+".slice", burstable+name),
			filepath.Join(pods, bestEffort+".slice", bestEffort+name),
			filepath.Join(pods, base+name),
		}
	}
	name := "pod" + string(uid)
	return []string{
		filepath.Join(pods, "burstable", name),
		filepath.Join(pods, "besteffort", name),
		filepath.Join(pods, name),
	}
}

// findPod returns the pod's cgroup, or an empty path if the cgroup does not exist.
func (h hierarchy) findPod(pods string, uid types.UID) string {
	if pods == "" || !filepath.IsLocal(string(uid)) {
		return ""
	}
	for _, cgroup := range podCgroups(pods, uid) {
		if h.has(cgroup) {
			return cgroup
		}
	}
	return ""
}

// cgroupReader reads files of cgroups. It is not safe for concurrent use.
type cgroupReader struct {
	hierarchy
	buf []byte
}

func (r *cgroupReader) number(controller, cgroup, name string) value {
	b, err := readFile(r.file(controller, cgroup, name), &r.buf)
	if err != nil {
		return value{} // the cgroup was removed, or the controller is disabled
	}
	return parseNumber(b)
}

// memoryNames are the names of the memory files in one cgroup version.
type memoryNames struct{ usage, limit, swap string }

func (h hierarchy) memoryNames() memoryNames {
	if h.v2 {
		return memoryNames{"memory.current", "memory.max", "memory.swap.current"}
	}
	return memoryNames{"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.usage_in_bytes"}
}

// cgroupMemory is the memory of a cgroup and of all cgroups below, in bytes.
type cgroupMemory struct {
	usage, limit value
	memoryStat
}

// workingSet returns the working set as the kubelet defines it: the memory usage minus the
// inactive file pages (inactive_file).
func (m cgroupMemory) workingSet() value { return m.usage.minus(m.inactiveFile) }

// memory reads a cgroup's memory. The root cgroup of version 2 has no usage file; as in the
// kubelet, the usage of that cgroup is the sum of anonymous memory and file pages.
func (r *cgroupReader) memory(cgroup string) cgroupMemory {
	m := r.memoryUsage(cgroup)
	if cgroup != "/" || !r.v2 {
		m.limit = r.number("memory", cgroup, r.memoryNames().limit)
	}
	return m
}

// memoryUsage reads a cgroup's memory as [cgroupReader.memory] does, but leaves the limit
// unknown.
func (r *cgroupReader) memoryUsage(cgroup string) (m cgroupMemory) {
	if b, err := readFile(r.file("memory", cgroup, "memory.stat"), &r.buf); err == nil {
		m.memoryStat = parseMemoryStat(b)
	}
	if cgroup == "/" && r.v2 {
		m.usage = m.anon.plus(m.file)
	} else {
		m.usage = r.number("memory", cgroup, r.memoryNames().usage)
	}
	return m
}

// swap returns the swap usage of a cgroup. Version 1 only reports the sum of memory and swap,
// so the memory usage of m is subtracted.
func (r *cgroupReader) swap(cgroup string, m cgroupMemory) value {
	v := r.number("memory", cgroup, r.memoryNames().swap)
	if r.v2 {
		return v
	}
	return v.minus(m.usage)
}

// processes returns the number of processes and threads in a cgroup.
func (r *cgroupReader) processes(cgroup string) value {
	return r.number("pids", cgroup, "pids.current")
}

// cpu returns the CPU time that a cgroup has used, in nanoseconds.
func (r *cgroupReader) cpu(cgroup string) value {
	if !r.v2 {
		b, err := readFile(r.file("cpuacct", cgroup, "cpuacct.usage"), &r.buf)
		if err != nil {
			return value{}
		}
		return number(b)
	}
	b, err := readFile(r.file("cpu", cgroup, "cpu.stat"), &r.buf)
	if err != nil {
		return value{}
	}
	return parseKey(b, "usage_usec").times(1000)
}

// pressure returns the pressure of a cgroup for a resource: "cpu", "memory" or "io". It returns nil
// in version 1, or if the pressure is unknown.
func (r *cgroupReader) pressure(cgroup, resource string) *statsapi.PSIStats {
	if !r.v2 {
		return nil
	}
	return r.pressureAt(r.file("", cgroup, resource+".pressure"))
}

func (r *cgroupReader) pressureAt(path string) *statsapi.PSIStats {
	b, err := readFile(path, &r.buf)
	if err != nil {
		return nil // the kernel does not report pressure, or the cgroup was removed
	}
	psi, ok := parsePressure(b)
	if !ok {
		return nil
	}
	return &psi
}
