package stats

import (
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A hierarchy is where cgroups are: one tree in version 2, one per controller in
// version 1.
type hierarchy struct {
	root string
	v2   bool
}

// hierarchyAt looks which version is mounted at root.
func hierarchyAt(root string) hierarchy {
	return hierarchy{root, exists(filepath.Join(root, "cgroup.controllers"))}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// file returns the path of a cgroup's file. The controller matters in version 1.
func (h hierarchy) file(controller, cgroup, name string) string {
	if h.v2 {
		return filepath.Join(h.root, cgroup, name)
	}
	return filepath.Join(h.root, controller, cgroup, name)
}

// has says whether there is such a cgroup.
func (h hierarchy) has(cgroup string) bool { return exists(h.file("memory", cgroup, "")) }

// findPods returns the cgroup of all pods, empty if there is none: the configured
// one, else that of either of the kubelet's drivers.
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

// podCgroups returns where the kubelet puts a pod below the cgroup of all pods,
// for each class of service. The systemd driver writes the whole path into each
// name and, as dashes are its levels, the UID with underscores.
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

// findPod returns the pod's cgroup, empty if it has none.
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

// A cgroupReader reads the files of cgroups, one after the other, and is not for
// several goroutines.
type cgroupReader struct {
	hierarchy
	buf []byte
}

func (r *cgroupReader) number(controller, cgroup, name string) value {
	b, err := readFile(r.file(controller, cgroup, name), &r.buf)
	if err != nil {
		return value{} // gone, or a controller that is off
	}
	return parseNumber(b)
}

// memoryNames are the files of memory in the two versions.
type memoryNames struct{ usage, limit, swap string }

func (h hierarchy) memoryNames() memoryNames {
	if h.v2 {
		return memoryNames{"memory.current", "memory.max", "memory.swap.current"}
	}
	return memoryNames{"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.usage_in_bytes"}
}

// cgroupMemory is what a cgroup and all below it have of memory, in bytes.
type cgroupMemory struct {
	usage, limit value
	memoryStat
}

// workingSet is what can't be taken without anybody noticing, as the kubelet
// counts it: everything but the file pages that were read once.
func (m cgroupMemory) workingSet() value { return m.usage.minus(m.inactiveFile) }

// memory reads a cgroup's memory. The root of version 2 does not say what it uses;
// there, as in the kubelet, it is what the pages of processes and files add up to.
func (r *cgroupReader) memory(cgroup string) cgroupMemory {
	m := r.memoryUsage(cgroup)
	if cgroup != "/" || !r.v2 {
		m.limit = r.number("memory", cgroup, r.memoryNames().limit)
	}
	return m
}

// memoryUsage is memory without the limit.
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

// swap returns the swap space that a cgroup uses. Version 1 counts it together
// with memory.
func (r *cgroupReader) swap(cgroup string, m cgroupMemory) value {
	v := r.number("memory", cgroup, r.memoryNames().swap)
	if r.v2 {
		return v
	}
	return v.minus(m.usage)
}

// processes returns how many processes and threads a cgroup has.
func (r *cgroupReader) processes(cgroup string) value {
	return r.number("pids", cgroup, "pids.current")
}

// cpu returns the nanoseconds of processor time that a cgroup has used.
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

// pressure returns what a cgroup of version 2 says about "cpu", "memory" or "io",
// nil if that is nothing.
func (r *cgroupReader) pressure(cgroup, resource string) *statsapi.PSIStats {
	if !r.v2 {
		return nil
	}
	return r.pressureAt(r.file("", cgroup, resource+".pressure"))
}

func (r *cgroupReader) pressureAt(path string) *statsapi.PSIStats {
	b, err := readFile(path, &r.buf)
	if err != nil {
		return nil // a kernel without, or where it is switched off
	}
	psi, ok := parsePressure(b)
	if !ok {
		return nil
	}
	return &psi
}
