package lifecycle

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/doc.go"

// admissionRules compute our value by running the kubelet's package in a changed world: the
// cause of a difference is the necessary change.
func admissionRules() []judge.Rule[*world] {
	cause := func(name string, class judge.Class, sentence string, v variant) judge.Rule[*world] {
		return judge.Rule[*world]{Name: name, Class: class, Sentence: sentence, Doc: doc, Ends: true, Explains: func(s judge.Scene[*world]) bool { return v.explains(s) }}
	}
	return []judge.Rule[*world]{
		cause("limits without requests", judge.Deliberate,
			"The kubelet relies on the API server to set missing requests. Here a pod without these defaults is admitted with its limits as requests.",
			variant{defaulted: true}),
		cause("resources freed by preemption victims", judge.KubeletDefect,
			"When the kubelet selects victims for a critical pod, it counts only the requests of their containers. This package also counts overhead, pod-level requests and the resources that a resized pod still holds, because all of these become free.",
			variant{held: true}),
		cause("unnecessary preemption victims", judge.Deliberate,
			"The kubelet may preempt more pods than necessary: it preempts a pod although the other preempted pods free enough resources. Here that pod keeps running.",
			variant{held: true, pruned: true}),
		cause("extended resources of a refetched node", judge.KubeletDefect,
			"If the node's labels do not match a pod, the kubelet fetches the node again. It then does not count extended resources that only the fetched node has; this package counts them.",
			variant{known: true}),
		cause("pods admitted before a restart", judge.Deliberate,
			"After a restart, the kubelet rejects a pod that no longer matches the labels or taints of the node. This package does not reject the pod for this reason if the pod has a start time and NodeConfig.Allocated reports that the pod was admitted before.",
			variant{settled: true}),
		cause("int64 overflow of quantities", judge.KubeletDefect,
			"Amounts that an int64 cannot hold count as the largest int64. In the kubelet they overflow, so a pod that requests too much may count as requesting nothing.",
			variant{capped: true}),
	}
}

// A variant is a way to change a world so that the kubelet decides as our package does.
type variant struct {
	defaulted bool // set missing requests
	held      bool // preemption counts the allocated resources of pods as their requests
	pruned    bool // unnecessary victims are not killed
	spared    []string
	excluded  bool // protected pods are no candidates, so that other pods are killed instead
	known     bool // the node has all extended resources of the fetched node
	settled   bool // pods that were admitted before fit on every node
	capped    bool // no amount overflows
}

// all returns the variant with all our differences.
func (v variant) all() variant {
	return variant{defaulted: true, held: true, pruned: v.pruned, known: true, settled: true, capped: true}
}

// explains reports whether the kubelet has our result in the changed world. The changes of
// other rules may also be necessary, but they must not suffice without this one.
func (v variant) explains(s judge.Scene[*world]) bool {
	if v.decides(s) {
		return true
	}
	without := v.all()
	switch {
	case v.pruned:
		without.pruned = false
	case v.held:
		without.held = false
	case v.defaulted:
		without.defaulted = false
	case v.known:
		without.known = false
	case v.settled:
		without.settled = false
	case v.capped:
		without.capped = false
	}
	return v.all().decides(s) && !without.decides(s)
}

func (v variant) decides(s judge.Scene[*world]) bool {
	value := v.replay(s)[s.Fact]
	if v.capped && s.Fact == "message" {
		return sameAmounts(value, s.Ours)
	}
	return value == s.Ours
}

// replay runs the kubelet's admission of the step's pod in the changed world.
func (v variant) replay(s judge.Scene[*world]) judge.Facts {
	w := &world{Node: s.World.Node.DeepCopy(), Fresh: s.World.Fresh.DeepCopy(), CannotEnd: s.World.CannotEnd, NoFresh: s.World.NoFresh}
	if v.known && s.KubeletFacts[s.Step]["fetched"] == "1" && w.Fresh != nil {
		w.Node.Status.Allocatable = sameNames(w.Node.Status.Allocatable, w.Fresh.Status.Allocatable)
	}
	change := func(pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		if v.defaulted {
			fillIn(pod)
		}
		if v.settled && s.World.Settled[pod.Name] && pod.Status.StartTime != nil {
			goAnywhere(pod)
		}
		if v.capped {
			capPod(pod)
		}
		return pod
	}
	if v.capped {
		for _, n := range []*corev1.Node{w.Node, w.Fresh} {
			if n != nil {
				capList(n.Status.Allocatable)
			}
		}
	}
	side := &side{w: w}
	for _, pod := range running(s) {
		side.pods = append(side.pods, change(pod))
	}
	pod := change(s.World.Pods[s.Step])
	w.Pods = []*corev1.Pod{pod}
	before := slices.Clone(side.pods)
	facts := admitVariant(side, v)[0]
	if v.pruned && facts["victims"] != "" {
		v.spared = notNeeded(pod, before, w.Node, strings.Fields(facts["victims"]))
		side.pods = slices.Clone(before)
		facts = admitVariant(side, v)[0]
		var victims []*corev1.Pod
		for name := range strings.FieldsSeq(facts["victims"]) {
			victims = append(victims, byName(before, name))
		}
		if needs, _ := lifecycle.Needs(lifecycle.FitsAll(pod, before, w.Node)); !covers(victims, needs) {
			v.excluded, side.pods = true, before
			facts = admitVariant(side, v)[0]
		}
	}
	return facts
}

func (v variant) spares(victim string) bool { return slices.Contains(v.spared, victim) }

// notNeeded returns the victims of each class, the most expensive first, that are unnecessary
// if the other victims and all pods of cheaper classes are killed.
func notNeeded(pod *corev1.Pod, before []*corev1.Pod, n *corev1.Node, victims []string) (spared []string) {
	needs, _ := lifecycle.Needs(lifecycle.FitsAll(pod, before, n))
	var certain []*corev1.Pod
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		var chosen, cheaper []*corev1.Pod
		for _, name := range victims {
			if p := byName(before, name); podspec.QOSClass(p) == class {
				chosen = append(chosen, p)
			}
		}
		for _, p := range before {
			if podspec.CanPreempt(pod, p) && dearness(podspec.QOSClass(p)) < dearness(class) {
				cheaper = append(cheaper, p)
			}
		}
		kept := prune(chosen, slices.Concat(certain, cheaper), needs)
		certain = append(certain, kept...)
		for _, p := range chosen {
			if !slices.Contains(kept, p) {
				spared = append(spared, p.Name)
			}
		}
	}
	return spared
}

func dearness(class corev1.PodQOSClass) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, class)
}

func byName(pods []*corev1.Pod, name string) *corev1.Pod {
	return pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })]
}

// sameNames returns allocatable with exactly the extended resources of the fetched node.
func sameNames(allocatable, fetched corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(allocatable)
	for _, name := range []corev1.ResourceName{knownExt, otherExt} {
		_, has := fetched[name]
		if _, had := all[name]; has && !had {
			all[name] = resource.MustParse("1Ti")
		} else if !has {
			delete(all, name)
		}
	}
	return all
}

// fillIn adds the requests that the API server derives from limits.
func fillIn(pod *corev1.Pod) {
	for _, all := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range all {
			r := &all[i].Resources
			requests := corev1.ResourceList{}
			maps.Copy(requests, r.Limits)
			maps.Copy(requests, r.Requests)
			r.Requests = requests
		}
	}
}

// flat returns pods with one container that requests their allocated resources.
func flat(pods []*corev1.Pod) (all []*corev1.Pod) {
	for _, pod := range pods {
		one := pod.DeepCopy()
		held := podspec.AllocatedResources(pod)
		class := podspec.QOSClass(pod)
		one.Spec.InitContainers, one.Spec.Overhead, one.Spec.Resources = nil, nil, nil
		one.Spec.Containers = []corev1.Container{{Name: "all", Resources: corev1.ResourceRequirements{Requests: held}}}
		one.Status = corev1.PodStatus{QOSClass: class}
		all = append(all, one)
	}
	return all
}

// prune returns the chosen pods, in order, without those that are unnecessary in addition to
// the others.
func prune(chosen, others []*corev1.Pod, needs []lifecycle.Need) []*corev1.Pod {
	for i := 0; i < len(chosen); {
		rest := slices.Delete(slices.Clone(chosen), i, i+1)
		if !covers(slices.Concat(rest, others), needs) {
			i++
			continue
		}
		chosen = rest
	}
	return chosen
}

func covers(pods []*corev1.Pod, needs []lifecycle.Need) bool {
	for _, n := range needs {
		left := n.Amount
		for _, pod := range pods {
			q := podspec.AllocatedResources(pod)[n.Resource]
			switch n.Resource {
			case corev1.ResourcePods:
				left--
			case corev1.ResourceCPU:
				left -= q.MilliValue()
			default:
				left -= q.Value()
			}
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// running returns the pods on the kubelet's node before a step.
func running(s judge.Scene[*world]) (pods []*corev1.Pod) {
	if s.Step == 0 {
		return nil
	}
	for name := range strings.FieldsSeq(s.KubeletFacts[s.Step-1]["pods"]) {
		pods = append(pods, byName(s.World.Pods, name))
	}
	return pods
}
