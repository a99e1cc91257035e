package stats

import "fmt"

// Estimator says how the memory that the node can still give is calculated.
type Estimator string

// Estimators.
const (
	// MemAvailable is the kernel's own estimate: free memory, and what of caches
	// and slabs can be reclaimed without swapping. Reserved huge pages and the
	// watermarks of the zones are not in it. To it come the pages that processors keep
	// for themselves, which the kernel forgets: when a large process ends, Linux 6.7
	// and later leave up to an eighth of the memory there for a minute, and a second pod
	// would be evicted because the first did not seem to help. The default.
	MemAvailable Estimator = "MemAvailable"
	// WorkingSet is all memory less the root cgroup's working set, less reserved
	// huge pages and the low watermarks: for those who compare with the kubelet
	// and run into neither kubernetes#137984 nor kubernetes#131319.
	WorkingSet Estimator = "WorkingSet"
	// KubeletWorkingSet is exactly what the kubelet calculates: all memory less the
	// root cgroup's working set. Pages of files that were read twice count as
	// used (kubernetes#43916); on cgroup v2 the kernel's own memory does not
	// (kubernetes#118916); huge pages count as available.
	KubeletWorkingSet Estimator = "KubeletWorkingSet"
)

// needsCgroup says whether the estimate is made of the root cgroup's figures.
func (e Estimator) needsCgroup() bool { return e != MemAvailable }

func (e Estimator) validate() error {
	switch e {
	case "", MemAvailable, WorkingSet, KubeletWorkingSet:
		return nil
	default:
		return fmt.Errorf("field Estimator: %q is none of %s, %s, %s", e, MemAvailable, WorkingSet, KubeletWorkingSet)
	}
}

// available is the estimate. Of the zones only what it needs has to be known.
func (e Estimator) available(m meminfo, root cgroupMemory, z zones) value {
	switch e {
	case KubeletWorkingSet:
		return m.total.minus(root.workingSet())
	case WorkingSet:
		// A kernel built without huge pages does not mention them.
		return m.total.minus(root.workingSet()).minus(m.hugepages.or(known(0))).minus(z.low)
	case MemAvailable:
		if m.available.ok {
			return m.available.plus(z.kept.or(known(0))).least(m.total)
		}
	}
	return value{}
}
