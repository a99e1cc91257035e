package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ErrNoVictims means that a critical pod does not fit even if every pod that it
// may preempt is killed.
var ErrNoVictims = errors.New("no set of running pods found to reclaim resources")

// Need is an amount of a resource that must become free: CPU in millicores,
// other resources in their own unit.
type Need struct {
	Resource corev1.ResourceName
	Amount   int64
}

// Needs returns the resources that are missing according to the failures. ok is
// false if one of the failures is not about a resource, because preemption does
// not help then.
func Needs(failures []AdmissionFailure) (needs []Need, ok bool) {
	for _, m := range failures {
		if m.Resource == "" {
			return nil, false
		}
		needs = append(needs, Need{Resource: m.Resource, Amount: m.Missing()})
	}
	return needs, true
}

// PlanPreemption returns which of the running pods must be killed so that the
// needs of preemptor become free. Pods are killed in the order of their QoS
// classes: BestEffort, Burstable, Guaranteed. Pods of a class are killed only
// for needs that all pods of the earlier classes together cannot cover. Within
// a class, the pod that comes closest to covering the needs is killed first.
// Among equally close pods, the order is: less memory, less CPU, lower
// priority, younger. A pod is not killed if the other victims cover the needs.
// Only pods that preemptor may preempt are selected: see [podspec.CanPreempt].
//
// The error is [ErrNoVictims] with the needs that cannot be covered.
// PlanPreemption is pure, and its result does not depend on the order of the
// running pods.
func PlanPreemption(preemptor *corev1.Pod, running []*corev1.Pod, needs []Need) ([]*corev1.Pod, error) {
	var classes [3]candidates // BestEffort, Burstable, Guaranteed
	var all candidates
	for _, pod := range running {
		if pod == nil || !podspec.CanPreempt(preemptor, pod) {
			continue
		}
		c := candidate{pod: pod, held: holdings(pod, needs)}
		all = append(all, c)
		switch podspec.QOSClass(pod) {
		case corev1.PodQOSBestEffort:
			classes[0] = append(classes[0], c)
		case corev1.PodQOSGuaranteed:
			classes[2] = append(classes[2], c)
		default: // PodQOSBurstable
			classes[1] = append(classes[1], c)
		}
	}
	if left := all.cover(needs); len(left) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoVictims, needsText(left))
	}
	// Start with the most important class. In each class, select victims only
	// for the needs that the victims selected so far and all pods of the lower
	// classes cannot cover.
	var chosen candidates
	for class := len(classes) - 1; class >= 0; class-- {
		left := chosen.cover(needs)
		for _, cheaper := range classes[:class] {
			left = cheaper.cover(left)
		}
		chosen = append(classes[class].closest(left), chosen...)
	}
	victims := make([]*corev1.Pod, len(chosen))
	for i, c := range chosen {
		victims[i] = c.pod
	}
	return victims, nil
}

// A candidate is a pod that may be killed. held contains the pod's amounts of
// the needed resources, and of memory and CPU, which break ties.
type candidate struct {
	pod  *corev1.Pod
	held map[corev1.ResourceName]int64
}

func holdings(pod *corev1.Pod, needs []Need) map[corev1.ResourceName]int64 {
	list := podspec.AllocatedResources(pod)
	held := map[corev1.ResourceName]int64{
		corev1.ResourceMemory: amount(list, corev1.ResourceMemory),
		corev1.ResourceCPU:    amount(list, corev1.ResourceCPU),
	}
	for _, n := range needs {
		held[n.Resource] = amount(list, n.Resource)
	}
	held[corev1.ResourcePods] = 1
	return held
}

type candidates []candidate

// cover returns the needs that are left if all pods of cs are killed.
func (cs candidates) cover(needs []Need) (left []Need) {
	for _, n := range needs {
		for _, c := range cs {
			n.Amount -= min(n.Amount, c.held[n.Resource])
		}
		if n.Amount > 0 {
			left = append(left, n)
		}
	}
	return left
}

// closest selects pods until the needs are covered. It then removes each
// selected pod that is unnecessary because the other selected pods cover the
// needs. All pods of cs together must cover the needs.
func (cs candidates) closest(needs []Need) (picked candidates) {
	rest := slices.Clone(cs)
	for left := needs; len(left) > 0 && len(rest) > 0; {
		best := 0
		for i := range rest {
			if order(rest[i], rest[best], left) < 0 {
				best = i
			}
		}
		left = rest[best : best+1].cover(left)
		picked = append(picked, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	for i := 0; i < len(picked); {
		if others := picked[:i].cover(needs); len(picked[i+1:].cover(others)) > 0 {
			i++ // needed
			continue
		}
		picked = slices.Delete(picked, i, i+1)
	}
	return picked
}

// order compares two pods. If the result is negative, the first pod is killed
// before the second pod.
func order(a, b candidate, needs []Need) int {
	return cmp.Or(
		cmp.Compare(a.distance(needs), b.distance(needs)),
		cmp.Compare(a.held[corev1.ResourceMemory], b.held[corev1.ResourceMemory]),
		cmp.Compare(a.held[corev1.ResourceCPU], b.held[corev1.ResourceCPU]),
		cmp.Compare(podspec.Priority(a.pod), podspec.Priority(b.pod)),
		b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time),
		strings.Compare(string(a.pod.UID), string(b.pod.UID)),
	)
}

// distance returns how far the pod is from covering the needs. The distance is
// the sum of the squares of the uncovered fractions of the needs, so that each
// resource has the same weight.
func (c candidate) distance(needs []Need) (d float64) {
	for _, n := range needs {
		if left := float64(n.Amount - c.held[n.Resource]); left > 0 {
			d += (left / float64(n.Amount)) * (left / float64(n.Amount))
		}
	}
	return d
}

func needsText(needs []Need) string {
	var b strings.Builder
	for _, n := range needs {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", n.Resource, n.Amount)
	}
	return "[" + b.String() + "]"
}
