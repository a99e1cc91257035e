package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/eviction"
)

// victims returns the pods that are evicted for a threshold, and fills in d.
func (st *step) victims(t threshold, at time.Duration, limits []string, q quirks, d *decision) (all []string) {
	if !q[figuresAfter] {
		at = st.at
	}
	names := st.rank(t.Signal, at, q)
	free, places := int64(0), 1
	if q[severalGo] {
		places = st.w.Parallel
	}
	if q[adopts] {
		st.escalateAdopted(t, at, true, q, d)
		adopted, pending, ending := st.adoptedFrees(t, at, true, d.escalated)
		if pending {
			return nil
		}
		free, places = free+adopted, places-ending
		if free >= st.missing(t, at) || places <= 0 {
			return nil
		}
	}
	if q[endingPassed] {
		for name := range strings.FieldsSeq(d.escalated) {
			if slices.Contains(st.note().Adopted, name) {
				continue
			}
			n, known := st.uses(st.m.pod(name), st.m.deaths[name].began, t.Signal, q)
			if free += n; !known || free >= st.missing(t, at) {
				return nil
			}
		}
	}
	freed, isKnown := st.beingFreed(t.Signal, at, q)
	if free += freed; q[freedCounts] && (!isKnown || free >= st.missing(t, at)) {
		return nil
	}
	for _, name := range names {
		p := st.m.pod(name)
		n, known := st.uses(p, at, t.Signal, q)
		if isCritical(p.Pod) || slices.Contains(limits, name) || st.passes(name, n, known, t, q) {
			continue
		}
		if places <= 0 || (q[freedCounts] || len(all) > 0) && free >= st.missing(t, at) {
			break
		}
		places--
		all = append(all, name)
		if free += n; !known || !q[severalGo] {
			break
		}
	}
	if len(names) > 0 && (len(all) > 0 || d.ranking == "") {
		d.ranking = fmt.Sprint(names)
	}
	slices.SortFunc(all, func(a, b string) int { return st.w.place(a) - st.w.place(b) })
	return all
}

// escalate sets the grace period of pods that are terminating slowly to zero, for a hard
// threshold.
func (st *step) escalate(t threshold, at time.Duration, q quirks, d *decision) {
	if t.Grace > 0 || !q[endingPassed] {
		return
	}
	st.escalateAdopted(t, at, st.limitsAskedAt(at), q, d)
	free, _ := st.beingFreed(t.Signal, at, q)
	if q[adopts] {
		adopted, _, _ := st.adoptedFrees(t, at, st.limitsAskedAt(at), d.escalated)
		free += adopted
	}
	slow := st.endingSlowly()
	for _, name := range slow {
		if slices.Contains(strings.Fields(d.escalated), name) {
			n, _ := st.uses(st.m.pod(name), st.m.deaths[name].began, t.Signal, q)
			free += n
		}
	}
	for _, name := range slow {
		n, known := st.uses(st.m.pod(name), st.m.deaths[name].began, t.Signal, q)
		if free >= st.missing(t, at) || known && n <= 0 || slices.Contains(strings.Fields(d.escalated), name) {
			continue
		}
		d.escalated = strings.TrimSpace(d.escalated + " " + name)
		free += n
	}
}

// beingFreed returns the disk space that ended pods still use, as long as our manager expects
// that it becomes free.
func (st *step) beingFreed(s eviction.Signal, at time.Duration, q quirks) (sum int64, known bool) {
	if !q[freedCounts] || isMemory(s) || s == eviction.PIDAvailable {
		return 0, true
	}
	known = true
	for i := range st.w.Pods {
		p := &st.w.Pods[i]
		d := st.m.deaths[p.Pod.Name]
		isOurs := false
		for n := st.lastStart(); n < st.index; n++ {
			isOurs = isOurs || st.kills(st.before[n], p.Pod.Name)
		}
		if d == nil || !isOurs || d.began >= st.at || d.ends > at || at >= d.ends+min(30*time.Second, p.Kill.Cleanup) {
			continue
		}
		n, ok := st.uses(p, d.began, s, q)
		sum, known = sum+n, known && ok
	}
	return sum, known
}

// endingSlowly returns the pods that our manager has evicted for a soft threshold and that
// are overdue.
func (st *step) endingSlowly() (all []string) {
	for _, name := range st.note().Ending {
		word, isShort := "", false
		for i := st.lastStart(); i < st.index; i++ {
			if k := st.killed(st.before[i], name); k != "" {
				word, isShort = k, false
			}
			isShort = isShort || slices.Contains(strings.Fields(st.before[i]["escalated"]), name)
		}
		isSoft := slices.ContainsFunc(st.w.thresholds(), func(t threshold) bool {
			quantity := amount(t.Value, st.w.Figures[st.w.figureOf(t.Signal)].Capacity)
			return t.Grace > 0 && word == name+":"+resourceOf(t.Signal)+"<"+itoa(quantity)
		})
		if isSoft && !isShort {
			all = append(all, name)
		}
	}
	return all
}

// passes reports whether the eviction skips a pod.
func (st *step) passes(name string, n int64, known bool, t threshold, q quirks) bool {
	isEnding := slices.Contains(st.note().Ending, name)
	switch {
	case q[endingPassed] && isEnding:
		return true
	case q[uselessPassed] && known && n <= 0:
		return true
	default:
		return q[unmeasuredLast] && !known && !st.overdue(name) && st.measuresPods(t.Signal)
	}
}

// activeAt returns the active pods at a time of this step, before its kills.
func (st *step) activeAt(at time.Duration) (all []string) {
	if st.isBetween {
		return st.m.activeAt(at)
	}
	for i := range st.w.Pods {
		p := &st.w.Pods[i]
		name := p.Pod.Name
		isNew := p.Arrives > st.at && p.Arrives <= at
		hasEnded := slices.Contains(st.note().Ending, name) && st.m.deaths[name].ends <= at
		if isNew || slices.Contains(st.note().Active, name) && !hasEnded {
			all = append(all, name)
		}
	}
	return all
}

func isCritical(pod *corev1.Pod) bool {
	source := pod.Annotations["kubernetes.io/config.source"]
	_, mirror := pod.Annotations["kubernetes.io/config.mirror"]
	return source == "file" || mirror || priorityOf(pod) >= 2_000_000_000
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// rank returns the eviction order of the pods.
func (st *step) rank(s eviction.Signal, at time.Duration, q quirks) []string {
	type entry struct {
		name                     string
		class, exceeds, priority int64
		excess                   resource.Quantity
	}
	var all []entry
	for _, name := range st.activeAt(at) {
		p := st.m.pod(name)
		e := entry{name: name, priority: int64(priorityOf(p.Pod))}
		n, known := st.uses(p, at, s, q)
		_, hasStats := p.usage(at)
		e.excess = *resource.NewQuantity(n, resource.DecimalSI)
		e.excess.Sub(st.request(p.Pod, s, q))
		switch {
		case !q[unmeasuredLast] && !hasStats:
			e.class = -1
			e.excess = *resource.NewQuantity(1<<62, resource.DecimalSI)
		case q[unmeasuredLast] && !known && st.measuresPods(s):
			if e.class = 1; st.overdue(name) {
				e.class = -1
			}
			e.excess = resource.Quantity{}
		case q[nothingMeasured] && !st.measuresPods(s):
			e.excess = resource.Quantity{}
		case st.exceeds(p.Pod, n, s, q):
			e.exceeds = -1
		}
		all = append(all, e)
	}
	byPIDs := s == eviction.PIDAvailable && !q[unmeasuredLast]
	slices.SortStableFunc(all, func(a, b entry) int {
		if byPIDs {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.class, b.class), b.excess.Cmp(a.excess))
		}
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.exceeds, b.exceeds), cmp.Compare(a.priority, b.priority), b.excess.Cmp(a.excess),
			strings.Compare(a.name, b.name))
	})
	var names []string
	for _, e := range all {
		names = append(names, e.name)
	}
	if q[failedLast] {
		slices.SortStableFunc(names, func(a, b string) int {
			atA, failedA := st.failedAt(a, at)
			atB, failedB := st.failedAt(b, at)
			switch {
			case failedA && failedB:
				return cmp.Compare(atA, atB)
			case failedA:
				return 1
			case failedB:
				return -1
			default:
				return 0
			}
		})
	}
	return names
}
