package eviction

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
	kubeletresource "k8s.io/kubernetes/pkg/api/v1/resource"

	"github.com/kubeparts/kubeparts/eviction"
)

// measuresPods reports whether a signal counts any resource of a pod.
func (st *step) measuresPods(s eviction.Signal) bool {
	return st.w.Layout != eviction.SplitFS || s != eviction.ImageFSAvailable && s != eviction.ImageFSInodesFree
}

// uses returns a pod's usage for a signal, and whether it is known.
func (st *step) uses(p *podSpec, at time.Duration, s eviction.Signal, q quirks) (n int64, known bool) {
	u, ok := p.usage(at)
	if q[oldPodFigures] {
		u, ok = p.recent(at)
	}
	switch {
	case !ok || !st.measuresPods(s):
		return 0, false
	case s == eviction.PIDAvailable && u.Processes != nil:
		return *u.Processes, true
	case s == eviction.PIDAvailable:
		return 0, false
	case isMemory(s) && u.Memory != nil:
		return *u.Memory, true
	case isMemory(s):
		for _, c := range u.Containers {
			if c.Memory != nil && q[containerMemory] {
				n, known = n+*c.Memory, true
			}
		}
		return n, known
	default:
		return st.usesDisk(p, u, s, q)
	}
}

func (st *step) usesDisk(p *podSpec, u podUsage, s eviction.Signal, q quirks) (n int64, known bool) {
	isInodes := s == eviction.NodeFSInodesFree || s == eviction.ImageFSInodesFree || s == eviction.ContainerFSInodesFree
	isNode := s == eviction.NodeFSAvailable || s == eviction.NodeFSInodesFree
	add := func(d *disk) {
		switch {
		case d == nil:
		case isInodes:
			n, known = n+d.Inodes, true
		default:
			n, known = n+d.Bytes, true
		}
	}
	layers, rest := true, true
	if st.w.Layout == eviction.DedicatedImageFS {
		layers, rest = !isNode, isNode
	}
	for _, c := range u.Containers {
		if layers {
			add(c.Rootfs)
		}
		if rest {
			add(c.Logs)
		}
	}
	if !rest {
		return n, known
	}
	if u.Other > 0 && q[otherFiles] && !isInodes {
		add(&disk{Bytes: u.Other})
	}
	for _, v := range u.Volumes {
		if spec := p.volume(v.Name); isLocal(spec) || spec.HostPath != nil && !q[hostPathStays] {
			add(&v.Disk)
		}
	}
	return n, known
}

// request returns the pod's request in the unit of the signal, or the value that the kubelet
// uses instead.
func (st *step) request(pod *corev1.Pod, s eviction.Signal, q quirks) resource.Quantity {
	name := corev1.ResourceEphemeralStorage
	switch {
	case isMemory(s):
		name = corev1.ResourceMemory
	case s == eviction.PIDAvailable:
		return resource.Quantity{}
	case q[inodeUnits] && strings.HasSuffix(string(s), "inodesFree"):
		return resource.Quantity{}
	}
	if pod.Spec.Resources != nil && name == corev1.ResourceEphemeralStorage && q[containersBeside] {
		pod = pod.DeepCopy()
		pod.Spec.Resources = nil
	}
	return kubeletresource.GetResourceRequestQuantity(pod, name)
}

// exceeds reports whether a pod uses more than its request.
func (st *step) exceeds(pod *corev1.Pod, n int64, s eviction.Signal, q quirks) bool {
	if s == eviction.PIDAvailable && !q[unmeasuredLast] {
		return false
	}
	r := resource.Quantity{}
	if !strings.HasSuffix(string(s), "inodesFree") {
		r = st.request(pod, s, q)
	}
	return r.CmpInt64(n) < 0
}

// overdue reports whether a pod's figures are missing for so long that the pod is evicted
// first.
func (st *step) overdue(name string) bool {
	const grace = 2 * time.Minute
	p := st.m.pod(name)
	since := time.Duration(-1)
	for i, f := range st.before {
		n := &st.w.Notes[i]
		if n.Restarted {
			since = -1
		}
		isDue := false
		for fact := range f {
			isDue = isDue || strings.HasSuffix(fact, "/due")
		}
		at := n.At
		for _, round := range rounds(f) {
			at += st.w.took(round)
		}
		_, known := st.uses(p, at, n.Acts.Signal, oursAll())
		switch {
		case f["ranking"] != "" && known, f["ranking"] == "" && !isDue:
			since = -1
		case f["ranking"] != "" && since < 0:
			since = at
		}
	}
	return since >= 0 && !st.note().Restarted && st.at-since >= grace
}

// podLimit returns the local storage limit of a pod, if it has one. It passes a copy of the
// pod to the kubelet's function, which adds overhead to a fractional limit in the pod itself.
func podLimit(pod *corev1.Pod) (resource.Quantity, bool) {
	l, ok := helper.PodLimits(pod.DeepCopy(), helper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return l, ok
}

// activeAt returns the pods that are active at a time.
func (m *machine) activeAt(at time.Duration) (all []string) {
	for i := range m.w.Pods {
		p := &m.w.Pods[i]
		if d := m.deaths[p.Pod.Name]; p.Arrives <= at && (d == nil || at < d.ends) {
			all = append(all, p.Pod.Name)
		}
	}
	return all
}

// A note is information about a step that the kubelet's side passes to the rules, in addition
// to facts.
type note struct {
	At        time.Duration
	Restarted bool                     // the agent restarted before the step
	Blind     bool                     // the step has no evaluation
	Changes   int                      // number of changes of figures before the step
	Kills     int                      // number of kills that began before the step
	Attempts  map[string]int           // attempts to kill each pod, before the step
	Acts      threshold                // the threshold on which the kubelet acted
	Active    []string                 // active pods
	Ending    []string                 // active pods whose kill was requested before
	Adopted   []string                 // active pods that are known to have failed
	Failed    map[string]time.Duration // active pods with the time of a failed kill
}

// acts returns the threshold on which the kubelet acted, if any.
func (n *note) acts() []threshold {
	if n.Acts.Signal == "" {
		return nil
	}
	return []threshold{n.Acts}
}

func (m *machine) newNote() note {
	n := note{At: m.now(), Active: m.activeAt(m.now()), Changes: len(m.changes), Kills: m.kills, Attempts: maps.Clone(m.attempts), Failed: map[string]time.Duration{}}
	for _, name := range n.Active {
		if m.deaths[name] != nil {
			n.Ending = append(n.Ending, name)
			if m.pod(name).Pod.Status.Phase == corev1.PodFailed {
				n.Adopted = append(n.Adopted, name)
			}
		}
		if at, ok := m.failed[name]; ok {
			n.Failed[name] = at
		}
	}
	slices.Sort(n.Ending)
	return n
}
