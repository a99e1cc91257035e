package eviction

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Candidate is a pod with all facts that determine its place in the eviction order.
type Candidate struct {
	// Pod is the pod. It must not be modified.
	Pod *corev1.Pod
	// Priority and QOS are the pod's priority and QoS class.
	Priority int32
	QOS      corev1.PodQOSClass
	// Usage is the pod's usage of the starved resource. The pod's eviction is expected to
	// free this amount.
	Usage Usage
	// Request is the pod's request for the starved resource, in the unit of Usage. Excess
	// is Usage minus Request, negative if the pod uses less than it requests.
	Request, Excess int64
	// Exceeds reports whether the pod uses more than it requests.
	Exceeds bool
	// Preferred reports whether [Policy.Prefer] selected the pod.
	Preferred bool
	// Missing reports whether the pod's usage is unknown but should be known, and Overdue
	// whether it has been unknown for longer than [Policy.StatsGrace].
	Missing, Overdue bool
	// Kept is the reason why the pod must not be evicted. It is empty if the pod may be
	// evicted.
	Kept string
}

// Values of [Candidate.Kept].
const (
	// KeptCritical: the pod is critical, as static and mirror pods are.
	KeptCritical = "critical"
	// KeptProtected: [Policy.Protect] selected the pod.
	KeptProtected = "protected"
	// KeptEnded: the pod's phase is Succeeded or Failed.
	KeptEnded = "has ended"
	// KeptEnding: the pod is being evicted.
	KeptEnding = "is being evicted"
	// KeptFailed: the pod could not be killed, and it is too early to retry the kill.
	KeptFailed = "could not be killed"
	// KeptUnmeasured: the pod's stats have been missing for less than
	// [Policy.StatsGrace].
	KeptUnmeasured = "has no stats yet"
	// KeptUseless: evicting the pod would free nothing of the starved resource.
	KeptUseless = "would free nothing"
)

// KubeletRank is the kubelet's order: pods that use more than they request first, then by
// ascending priority, then by descending excess over the request.
func KubeletRank(a, b *Candidate) int {
	return cmp.Or(
		trueFirst(a.Exceeds, b.Exceeds),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(b.Excess, a.Excess),
	)
}

// QoSFirst orders BestEffort pods before Burstable pods, and Burstable pods before
// Guaranteed pods. It orders the pods of each class by [KubeletRank].
func QoSFirst(a, b *Candidate) int {
	return cmp.Or(cmp.Compare(qosPlace(a.QOS), qosPlace(b.QOS)), KubeletRank(a, b))
}

func qosPlace(class corev1.PodQOSClass) int {
	switch class {
	case corev1.PodQOSBestEffort:
		return 0
	case corev1.PodQOSGuaranteed:
		return 2
	default: // PodQOSBurstable
		return 1
	}
}

// trueFirst orders true before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// missingPlace orders pods without stats: after all other pods during StatsGrace, and before
// all other pods after StatsGrace.
func (c *Candidate) missingPlace() int {
	switch {
	case c.Overdue:
		return 0
	case c.Missing:
		return 2
	default:
		return 1
	}
}

// Rank returns all pods of obs in the order in which they are evicted for the signal,
// including pods that must not be evicted. The first of these rules that distinguishes two
// pods decides their order:
//
//  1. Pods that could not be killed come last, the most recently tried pod after the others.
//  2. Pods that [Policy.Prefer] selects come first.
//  3. Pods whose stats are overdue come first, pods whose stats are missing for a shorter
//     time come last.
//  4. [Policy.Rank] orders the pods.
//  5. The pod that started later comes first.
//  6. The UIDs decide, so that the order of the input never matters.
func Rank(signal Signal, s State, obs Observations, p Policy, now time.Time) []Candidate {
	p = p.withDefaults()
	m := signal.measure(s.layout(obs.Node.Layout))
	var all []Candidate
	for _, pod := range obs.Pods {
		if pod == nil {
			continue
		}
		c := m.candidate(pod, obs.PodStats[pod.UID])
		c.Preferred = p.Prefer != nil && p.Prefer(pod)
		if since := s.StatsMissingSince[pod.UID]; c.Missing && !since.IsZero() {
			c.Overdue = now.Sub(since) >= p.StatsGrace
		}
		c.Kept = keptReason(&c, &s, &p, now)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			s.NotBefore[a.Pod.UID].Compare(s.NotBefore[b.Pod.UID]),
			trueFirst(a.Preferred, b.Preferred),
			cmp.Compare(a.missingPlace(), b.missingPlace()),
			p.Rank(&a, &b),
			started(b.Pod).Compare(started(a.Pod)), // the younger pod first
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	return all
}

// keptReason returns why the pod must not be evicted. It returns an empty string if the pod
// may be evicted.
func keptReason(c *Candidate, s *State, p *Policy, now time.Time) string {
	switch {
	case podspec.IsCritical(c.Pod):
		return KeptCritical
	case p.Protect != nil && p.Protect(c.Pod):
		return KeptProtected
	case podspec.IsTerminal(c.Pod.Status.Phase):
		return KeptEnded
	case s.inFlight(c.Pod.UID) != nil:
		return KeptEnding
	case s.NotBefore[c.Pod.UID].After(now):
		return KeptFailed
	case c.Missing && !c.Overdue:
		return KeptUnmeasured
	case c.Usage.Known() && c.Usage.Value <= 0:
		return KeptUseless
	default:
		return ""
	}
}

// started returns the pod's start time, or its creation time if the start time is not set.
func started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// measure extracts one signal's usage from pod stats.
type measure struct {
	signal   Signal
	parts    parts
	resource corev1.ResourceName
}

func (s Signal) measure(layout Layout) measure {
	return measure{signal: s, parts: s.partsOn(layout), resource: s.resource()}
}

// candidate returns the pod with its usage and request. stats may be nil.
func (m measure) candidate(pod *corev1.Pod, stats *PodStats) Candidate {
	c := Candidate{Pod: pod, Priority: podspec.Priority(pod), QOS: podspec.QOSClass(pod)}
	var measured bool
	c.Usage, measured = m.usage(pod, stats)
	c.Missing = measured && !c.Usage.Known()
	if m.signal.inBytes() {
		c.Request = request(pod, m.resource)
	}
	if c.Usage.Known() {
		c.Excess = c.Usage.Value - c.Request
		c.Exceeds = c.Excess > 0
	}
	return c
}

// request returns the pod's request for one resource, including the pod's overhead. It
// returns 0 if only the overhead requests the resource.
func request(pod *corev1.Pod, name corev1.ResourceName) int64 {
	all := podspec.Requests(pod)[name]
	if all.Cmp(pod.Spec.Overhead[name]) == 0 {
		return 0
	}
	return all.Value()
}

// usage returns the pod's usage of the resource of the signal. ok is false if pods do not
// use the resource of the signal.
func (m measure) usage(pod *corev1.Pod, stats *PodStats) (u Usage, ok bool) {
	switch {
	case m.signal.isDisk() && m.parts == parts{}:
		return Usage{}, false
	case stats == nil:
		return Usage{}, true
	case m.resource == corev1.ResourceMemory:
		return memory(stats), true
	case m.resource == resourcePIDs:
		return stats.Processes, true
	default:
		return m.disk(pod, stats), true
	}
}

// memory returns the pod's working set, or the sum of its containers' working sets if only
// these are known.
func memory(stats *PodStats) Usage {
	if stats.Memory.Known() {
		return stats.Memory
	}
	var sum Usage
	for i := range stats.Containers {
		sum = sum.plus(stats.Containers[i].Memory)
	}
	return sum
}

// disk returns the sum of the pod's data that is on the disk of the signal.
func (m measure) disk(pod *corev1.Pod, stats *PodStats) (sum Usage) {
	pick := func(d DiskUsage) Usage { return d.Bytes }
	if m.resource == resourceInodes {
		pick = func(d DiskUsage) Usage { return d.Inodes }
	}
	for i := range stats.Containers {
		c := &stats.Containers[i]
		if m.parts.rootfs {
			sum = sum.plus(pick(c.Rootfs))
		}
		if m.parts.logs {
			sum = sum.plus(pick(c.Logs))
		}
	}
	if m.parts.logs {
		sum = sum.plus(pick(stats.Other))
	}
	for i := range stats.Volumes {
		v := &stats.Volumes[i]
		if m.parts.volumes && isDeletedWithPod(volume(pod, v.Name)) {
			sum = sum.plus(pick(v.DiskUsage))
		}
	}
	return sum
}

// plus adds v to u; an unknown value counts as zero. The time of the sum is the time of its
// oldest part.
func (u Usage) plus(v Usage) Usage {
	if !v.Known() {
		return u
	}
	sum := Usage{Value: plus(u.Value, v.Value), Time: v.Time}
	if u.Known() && u.Time.Before(v.Time) {
		sum.Time = u.Time
	}
	return sum
}

func volume(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// isDeletedWithPod reports whether the volume is on the node's disk and is deleted with
// the pod. Host paths are not deleted with the pod, and memory-backed volumes are not on
// the disk.
func isDeletedWithPod(v *corev1.Volume) bool {
	if v == nil {
		return false
	}
	return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault || v.ConfigMap != nil || v.GitRepo != nil
}

// inFlight returns the pod's eviction in progress, or nil.
func (s *State) inFlight(uid types.UID) *InFlight {
	for i := range s.InFlight {
		if s.InFlight[i].UID == uid {
			return &s.InFlight[i]
		}
	}
	return nil
}
