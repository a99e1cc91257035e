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

// ErrNoVictims says that a critical pod does not fit even if every pod goes that
// may make room for it.
var ErrNoVictims = errors.New("no set of running pods found to reclaim resources")

// Need is an amount of a resource that has to become free: cpu in thousandths,
// everything else in its unit.
type Need struct {
	Resource corev1.ResourceName
	Amount   int64
}

// Needs returns what the misfits lack of resources; ok is false if there is a
// misfit of another kind, which no preemption cures.
func Needs(misfits []Misfit) (needs []Need, ok bool) {
	for _, m := range misfits {
		if m.Resource == "" {
			return nil, false
		}
		needs = append(needs, Need{Resource: m.Resource, Amount: m.Missing()})
	}
	return needs, true
}

// PlanPreemption returns which of the running pods must go so that what preemptor
// needs becomes free, by what they hold. BestEffort pods go before Burstable ones
// and those before Guaranteed ones: of each class as few go as the classes before
// it can't spare. Within a class the pod that comes closest to covering the needs
// goes first, of equally close ones the one that holds less memory, then less
// cpu, then the one of lower priority, then the younger one. Only pods that
// preemptor may preempt are in it: see [podspec.CanPreempt].
//
// The error is [ErrNoVictims] with what stays uncovered. It is pure, and the
// order of running does not matter to it.
func PlanPreemption(preemptor *corev1.Pod, running []*corev1.Pod, needs []Need) ([]*corev1.Pod, error) {
	var classes [3]candidates // BestEffort, Burstable, Guaranteed
	var everybody candidates
	for _, pod := range running {
		if pod == nil || !podspec.CanPreempt(preemptor, pod) {
			continue
		}
		c := candidate{pod: pod, held: holdings(pod, needs)}
		everybody = append(everybody, c)
		switch podspec.QOSClass(pod) {
		case corev1.PodQOSBestEffort:
			classes[0] = append(classes[0], c)
		case corev1.PodQOSGuaranteed:
			classes[2] = append(classes[2], c)
		default: // PodQOSBurstable
			classes[1] = append(classes[1], c)
		}
	}
	if left := everybody.cover(needs); len(left) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoVictims, needsText(left))
	}
	// The dearest class first: from it only what all of the cheaper ones don't
	// cover, and so on down with what is certain to go.
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

// A candidate is a pod that may go, with what it holds of what is needed and of
// what decides between equals.
type candidate struct {
	pod  *corev1.Pod
	held map[corev1.ResourceName]int64
}

func holdings(pod *corev1.Pod, needs []Need) map[corev1.ResourceName]int64 {
	list := podspec.Held(pod)
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

// cover returns what of the needs is left if all of cs go.
func (cs candidates) cover(needs []Need) (left []Need) {
	for _, n := range needs {
		for _, c := range cs {
			n.Amount -= c.held[n.Resource]
		}
		if n.Amount > 0 {
			left = append(left, n)
		}
	}
	return left
}

// closest picks pods until the needs are covered. Together cs cover them.
func (cs candidates) closest(needs []Need) (picked candidates) {
	rest := slices.Clone(cs)
	for len(needs) > 0 && len(rest) > 0 {
		best := 0
		for i := range rest {
			if order(rest[i], rest[best], needs) < 0 {
				best = i
			}
		}
		needs = rest[best : best+1].cover(needs)
		picked = append(picked, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	return picked
}

// order says which of two pods goes first.
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

// distance is how far the pod is from covering the needs: the squares of the
// parts that stay uncovered, so that each resource weighs the same.
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
