package podworker

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/podworker/doc.go"

// A deviation is one difference of our side. All of them in sequence turn the kubelet's
// actions into ours. The last deviation that changes a fact explains it.
type deviation struct {
	judge.Rule[*world]

	// world changes the kubelet's input for one shutdown. It may be nil. It reports whether
	// it changed anything.
	world func(*world) bool
	// facts changes the kubelet's actions. It may be nil.
	facts func(*world, judge.Facts)
}

func deviations() []deviation {
	return []deviation{
		{
			Rule: judge.Rule[*world]{
				Name: "invalid shutdownGracePeriodByPodPriority entries", Class: judge.KubeletDefect, Doc: doc,
				Sentence: "The kubelet accepts negative periods in shutdownGracePeriodByPodPriority. It also accepts two entries with the same priority, and uses either entry. This package rejects both.",
			},
			facts: func(w *world, f judge.Facts) {
				priorities := map[int32]bool{}
				for _, b := range w.Config.ShutdownGracePeriodByPodPriority {
					if f["options"] != "" && (b.GracePeriod < 0 || priorities[b.Priority]) {
						f["options"] = "refused"
					}
					priorities[b.Priority] = true
				}
			},
		},
		{
			Rule: judge.Rule[*world]{
				Name: "inhibitor delay shorter than shutdown", Class: judge.Deliberate, Doc: doc,
				Sentence: "If the machine allows less time than a shutdown needs, this package shortens the first stages. The kubelet skips the graceful shutdown.",
			},
			world: lessTime,
		},
		{
			Rule: judge.Rule[*world]{
				Name: "fractional seconds of shutdown stages", Class: judge.Deliberate, Doc: doc,
				Sentence: "The kubelet rounds ShutdownGracePeriod and ShutdownGracePeriodCriticalPods down to whole seconds; here a stage has all of its time.",
			},
			world: tenths,
		},
		{
			Rule: judge.Rule[*world]{
				Name: "volumes of pods still running", Class: judge.Deliberate, Doc: doc,
				Sentence: "The kubelet waits for the volumes of all pods of a stage, even when the stage's time is over. This package waits only for the volumes of pods that have ended in time, because the other pods still use their volumes.",
			},
			facts: unendedVolumes,
		},
		{
			Rule: judge.Rule[*world]{
				Name: "cancelled node shutdown", Class: judge.Deliberate, Doc: doc,
				Sentence: "A cancelled shutdown stops at once; the kubelet notices the cancellation after it has killed all pods.",
			},
			facts: calledOff,
		},
	}
}

func rules() (all []judge.Rule[*world]) {
	for _, d := range deviations() {
		all = append(all, d.Rule)
	}
	return all
}

func predict(t *testing.T) func(judge.Scene[*world]) []judge.Prediction {
	t.Helper()
	return func(sc judge.Scene[*world]) []judge.Prediction {
		w := sc.World
		if w.predicted == nil {
			w.predicted = map[int][]judge.Prediction{}
		}
		if w.predicted[sc.Step] == nil {
			w.predicted[sc.Step] = w.predict(t, sc.Step, sc.KubeletFacts[sc.Step])
		}
		return w.predicted[sc.Step]
	}
}

func (w *world) predict(t *testing.T, step int, kubelet judge.Facts) []judge.Prediction {
	t.Helper()
	p := []judge.Prediction{{Facts: kubelet, By: -1}}
	changed := w.only(step)
	for i, d := range deviations() {
		if w.Shutdowns == nil && i > 0 { // the world has only options
			break
		}
		f := maps.Clone(p[len(p)-1].Facts)
		switch {
		case d.world != nil && d.world(changed):
			f = playKubelet(t, changed)[0]
			if step > 0 { // the lock was taken in an earlier step
				f["lock"] = strings.TrimPrefix(f["lock"], "held at first, ")
			}
		case d.facts != nil:
			d.facts(changed, f)
		}
		p = append(p, judge.Prediction{Facts: f, By: i})
	}
	return p
}

// only returns a world with one shutdown of w.
func (w *world) only(step int) *world {
	c := &world{Config: w.Config, Allowed: w.Allowed, Overridden: w.Overridden, scale: w.scale}
	if w.Shutdowns == nil {
		return c
	}
	s := w.Shutdowns[step]
	s.Pods = nil
	for _, p := range w.Shutdowns[step].Pods {
		s.Pods = append(s.Pods, &pod{Pod: p.DeepCopy(), Ends: p.Ends, Fails: p.Fails})
	}
	c.Shutdowns = []shutdown{s}
	return c
}

// allows returns how long logind waits if a side requests the whole time.
func (w *world) allows() time.Duration {
	if need := w.Config.Total(); need <= w.Allowed {
		return need
	}
	return min(w.Overridden, w.Config.Total())
}

// lessTime reduces the periods of the last stages, so that all stages fit into the allowed
// time.
func lessTime(w *world) bool {
	left := w.allows()
	if left == 0 || left == w.Config.Total() {
		return false
	}
	periods := slices.Clone(w.Config.GracePeriods())
	slices.SortFunc(periods, func(a, b podworker.ShutdownGracePeriodByPodPriority) int { return cmp.Compare(b.Priority, a.Priority) })
	for i := range periods {
		used := slices.ContainsFunc(w.Shutdowns[0].Pods, func(p *pod) bool { return w.stageOf(p).Priority == periods[i].Priority })
		if !used {
			continue
		}
		periods[i].GracePeriod = min(periods[i].GracePeriod, left)
		left -= periods[i].GracePeriod
	}
	w.Config = podworker.ShutdownConfig{ShutdownGracePeriodByPodPriority: periods}
	w.Allowed = w.Config.Total()
	return true
}

// tenths makes everything ten times as long if the stages have fractions of seconds.
func tenths(w *world) bool {
	periods := w.Config.GracePeriods()
	if w.allows() == 0 { // nothing happens
		return false
	}
	if !slices.ContainsFunc(periods, func(p podworker.ShutdownGracePeriodByPodPriority) bool { return p.GracePeriod%time.Second != 0 }) {
		return false
	}
	w.scale = 10
	for i := range periods {
		periods[i].GracePeriod *= w.scale
	}
	w.Config = podworker.ShutdownConfig{ShutdownGracePeriodByPodPriority: periods}
	w.Allowed = w.Config.Total()
	s := &w.Shutdowns[0]
	s.Volumes *= w.scale
	s.Cancelled *= w.scale
	for _, p := range s.Pods {
		p.Ends *= w.scale
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
			p.Spec.TerminationGracePeriodSeconds = new(*own * int64(w.scale))
		}
	}
	return true
}

// stageOf returns the stage in which a pod is terminated.
func (w *world) stageOf(p *pod) (stage podworker.ShutdownGracePeriodByPodPriority) {
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	periods := w.Config.GracePeriods()
	slices.SortFunc(periods, func(a, b podworker.ShutdownGracePeriodByPodPriority) int { return cmp.Compare(a.Priority, b.Priority) })
	for i, s := range periods {
		if i == 0 || s.Priority <= priority {
			stage = s
		}
	}
	return stage
}

// times returns the times in a fact, in the order in which they stand there.
func times(value string) (all []time.Duration) {
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }) {
		if d, err := time.ParseDuration(word); err == nil {
			all = append(all, d)
		}
	}
	return all
}

// unendedVolumes removes the calls about the volumes of pods that could not be terminated. It
// also removes calls about volumes after the end of the stage.
func unendedVolumes(w *world, f judge.Facts) {
	for _, p := range w.Shutdowns[0].Pods {
		name := "pod " + p.Name + "/volumes"
		if f[name] == "" {
			continue
		}
		told := times(f["pod "+p.Name+"/told"])[0]
		if p.Fails || times(f[name])[0]-told >= w.stageOf(p).GracePeriod/w.scale {
			delete(f, name)
		}
	}
}

// calledOff removes everything after the cancellation.
func calledOff(w *world, f judge.Facts) {
	s := w.Shutdowns[0]
	at := s.Cancelled / w.scale
	lock := times(f["lock"])
	if at == 0 || len(lock) == 0 {
		return
	}
	for _, p := range s.Pods {
		for _, what := range []string{"/volumes", "/told"} {
			if value := f["pod "+p.Name+what]; value != "" && times(value)[0] >= at {
				delete(f, "pod "+p.Name+what)
				if what == "/told" {
					delete(f, "pod "+p.Name+"/status")
				}
			}
		}
	}
	if lock[0] > at {
		f["lock"] = strings.ReplaceAll(f["lock"], lock[0].String(), at.String())
	}
}
