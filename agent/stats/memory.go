package stats

import "fmt"

// Estimator selects how the node's available memory is calculated.
type Estimator string

// Estimators.
const (
	// MemAvailable is the kernel's own estimate: free memory, plus the part of caches and slabs
	// that can be reclaimed without swapping. It excludes reserved huge pages and the
	// watermarks of the zones. The free pages on per-CPU lists are added, which the kernel
	// omits: when a large process ends, Linux 6.7 and later keep up to an eighth of the memory
	// there for a minute, and a second pod would be evicted because the first eviction did not
	// seem to help. The default.
	MemAvailable Estimator = "MemAvailable"
	// WorkingSet is all memory minus the root cgroup's working set, reserved huge pages and the
	// low watermarks. It suits comparisons with the kubelet where kubernetes#137984 and
	// kubernetes#131319 do not matter.
	WorkingSet Estimator = "WorkingSet"
	// KubeletWorkingSet is exactly the kubelet's calculation: all memory minus the root
	// cgroup's working set. File pages that were read twice count as used (kubernetes#43916);
	// on cgroup v2 the kernel's own memory does not (kubernetes#118916); huge pages count as
	// available.
	KubeletWorkingSet Estimator = "KubeletWorkingSet"
)

// needsCgroup reports whether the estimate uses the root cgroup's figures.
func (e Estimator) needsCgroup() bool { return e != MemAvailable }

func (e Estimator) validate() error {
	switch e {
	case "", MemAvailable, WorkingSet, KubeletWorkingSet:
		return nil
	default:
		return fmt.Errorf("field Estimator: %q is not one of %s, %s, %s", e, MemAvailable, WorkingSet, KubeletWorkingSet)
	}
}

// available returns the estimate. Only the zone figures that the estimator uses must be set.
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
