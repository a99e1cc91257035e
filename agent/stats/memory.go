package stats

import "fmt"

// Estimator selects how the node's available memory is calculated.
type Estimator string

// Estimators.
const (
	// MemAvailable is the kernel's own estimate, MemAvailable of /proc/meminfo: free memory, plus
	// the part of caches and slabs that the kernel can reclaim without swapping. The estimate
	// excludes reserved huge pages and the watermarks of the zones. The kernel omits the free pages
	// on the per-CPU lists, so the provider adds them. After a large process ends, Linux 6.7 and
	// later keep up to an eighth of the memory on these lists for a minute. Without these pages the
	// first eviction would seem to have freed nothing, and a second pod would be evicted.
	// MemAvailable is the default.
	MemAvailable Estimator = "MemAvailable"
	// WorkingSet is all memory minus the root cgroup's working set, minus reserved huge pages,
	// minus the low watermarks. Use WorkingSet to compare a node with a kubelet if
	// kubernetes#137984 and kubernetes#131319 do not matter on the node.
	WorkingSet Estimator = "WorkingSet"
	// KubeletWorkingSet is exactly the kubelet's calculation: all memory minus the root
	// cgroup's working set. File pages that were read twice count as used (kubernetes#43916).
	// On cgroup v2 the kernel's own memory counts as available (kubernetes#118916). Huge pages
	// count as available.
	KubeletWorkingSet Estimator = "KubeletWorkingSet"
)

// needsCgroup reports whether the estimator uses the root cgroup's figures.
func (e Estimator) needsCgroup() bool { return e != MemAvailable }

func (e Estimator) validate() error {
	switch e {
	case "", MemAvailable, WorkingSet, KubeletWorkingSet:
		return nil
	default:
		return fmt.Errorf("field Estimator: %q is not one of %s, %s, %s", e, MemAvailable, WorkingSet, KubeletWorkingSet)
	}
}

// available returns the estimate of available memory. The caller needs to set only those
// figures of root and z that the estimator uses.
func (e Estimator) available(m meminfo, root cgroupMemory, z zones) value {
	switch e {
	case KubeletWorkingSet:
		return m.total.minus(root.workingSet())
	case WorkingSet:
		// A kernel built without huge pages does not report them.
		return m.total.minus(root.workingSet()).minus(m.hugepages.or(known(0))).minus(z.low)
	case MemAvailable:
		if m.available.ok {
			return m.available.plus(z.perCPUFree.or(known(0))).least(m.total)
		}
	}
	return value{}
}
