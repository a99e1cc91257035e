package eviction

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Candidate is a pod with all that decides about its place in the order in which
// pods are evicted.
type Candidate struct {
	// Pod is the pod. It must not be modified.
	Pod *corev1.Pod
	// Priority and QOS are those of the pod.
	Priority int32
	QOS      corev1.PodQOSClass
	// Usage is what the pod uses of what the node lacks, and so what is expected
	// to become free.
	Usage Usage
	// Request is what it asks for of it, in the unit of Usage, and Excess how
	// much more than that it uses: negative for one that uses less.
	Request, Excess int64
	// Exceeds says that it uses more than it asks for.
	Exceeds bool
	// Preferred says that [Policy.Prefer] chose it.
	Preferred bool
	// Missing says that there is no figure of its usage and should be one, and
	// Overdue that this is so for longer than [Policy.StatsGrace].
	Missing, Overdue bool
	// Kept is why the pod is not evicted, whatever its place; empty for one that
	// may be.
	Kept string
}

// Reasons of [Candidate.Kept].
const (
	// KeptCritical is a pod that the node depends on.
	KeptCritical = "critical"
	// KeptProtected is one that [Policy.Protect] names.
	KeptProtected = "protected"
	// KeptEnded is one that has nothing to lose any more.
	KeptEnded = "has ended"
	// KeptEnding is one whose eviction is under way.
	KeptEnding = "is being evicted"
	// KeptFailed is one that could not be killed a moment ago.
	KeptFailed = "could not be killed"
	// KeptUnmeasured is one whose figures are missing for less than
	// [Policy.StatsGrace].
	KeptUnmeasured = "has no figures yet"
	// KeptUseless is one whose end would free nothing of what the node lacks.
	KeptUseless = "frees nothing"
)

// KubeletRank is the kubelet's order: pods that use more than they ask for, then
// those of lower priority, then those that exceed their request by more.
func KubeletRank(a, b *Candidate) int {
	return cmp.Or(
		first(a.Exceeds, b.Exceeds),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(b.Excess, a.Excess),
	)
}

// QoSFirst evicts BestEffort pods before Burstable ones and those before
// Guaranteed ones, and orders each class as [KubeletRank] does.
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

// first orders what is before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// missingPlace is where pods without figures are: before all others once that is
// overdue, and after them until then.
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

// Rank returns all pods of obs in the order in which they are evicted for the
// signal, those included that are kept. Preferred pods are first, then those whose
// figures are overdue; [Policy.Rank] decides about the rest, then the later start,
// then the UID, so that the order of the input never matters. Those that could not be
// killed come after all others, the one that was tried last at the end.
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
		c.Kept = kept(&c, &s, &p, now)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			s.NotBefore[a.Pod.UID].Compare(s.NotBefore[b.Pod.UID]),
			first(a.Preferred, b.Preferred),
			cmp.Compare(a.missingPlace(), b.missingPlace()),
			p.Rank(&a, &b),
			started(b.Pod).Compare(started(a.Pod)), // the one that has done less goes first
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	return all
}

// kept returns why a pod is not evicted.
func kept(c *Candidate, s *State, p *Policy, now time.Time) string {
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

// started returns when the pod came to the node, as far as it says so.
func started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// A measure reads one signal's figures of pods.
type measure struct {
	signal   Signal
	parts    parts
	resource corev1.ResourceName
}

func (s Signal) measure(layout Layout) measure {
	return measure{signal: s, parts: s.partsOn(layout), resource: s.resource()}
}

// candidate returns the pod with what it uses and asks for. stats may be nil.
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

// request returns what the pod asks for of one resource, with its overhead if it asks for
// something.
func request(pod *corev1.Pod, name corev1.ResourceName) int64 {
	all := podspec.Requests(pod)[name]
	if all.Cmp(pod.Spec.Overhead[name]) == 0 {
		return 0
	}
	return all.Value()
}

// usage returns what the pod uses of the signal; ok is false for a signal that
// nothing of a pod counts towards.
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

// memory returns the pod's working set, that of its containers if only they are
// known.
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

// disk adds up the parts of the pod that are on the disk.
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
		if m.parts.volumes && goesWithPod(volume(pod, v.Name)) {
			sum = sum.plus(pick(v.DiskUsage))
		}
	}
	return sum
}

// plus adds what is known of u; the sum is as old as its oldest part.
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

// goesWithPod says whether the volume is on the node's disk and removed with the
// pod. What is in a host path stays, and memory is no disk.
func goesWithPod(v *corev1.Volume) bool {
	if v == nil {
		return false
	}
	return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault || v.ConfigMap != nil || v.GitRepo != nil
}

// inFlight returns the eviction of the pod that is under way, if one is.
func (s *State) inFlight(uid types.UID) *InFlight {
	for i := range s.InFlight {
		if s.InFlight[i].UID == uid {
			return &s.InFlight[i]
		}
	}
	return nil
}
