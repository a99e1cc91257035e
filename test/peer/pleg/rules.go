package pleg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	rule  = judge.Rule[*World]
	scene = judge.Scene[*World]
)

// A finding is a difference about one pod, with the model's result for this pod.
type finding struct {
	scene
	expectation
	step Step
	pod  string
	fact string // name of the fact without the pod
}

// atOnce converts a predicate about one pod to a predicate about a difference.
func atOnce(explains func(finding) bool) func(scene) bool {
	return func(s scene) bool {
		rest, ok := strings.CutPrefix(s.Fact, "pod ")
		pod, fact, cut := strings.Cut(rest, "/")
		if !ok || !cut || s.Step >= len(s.World.model.steps) {
			return false
		}
		return explains(finding{s, s.World.model.steps[s.Step].pods[pod], s.World.Steps[s.Step], pod, fact})
	}
}

// about is like atOnce for the first step with the difference. If a status has not changed on
// either side since an earlier step, its difference has the cause of that step.
func about(explains func(finding) bool) func(scene) bool {
	return atOnce(func(f finding) bool {
		if f.isStatus() {
			f = f.origin()
		}
		return explains(f)
	})
}

// object returns the object of a fact about events: "" for the pod.
func (f finding) object() (id string, ok bool) {
	id, ok = strings.CutPrefix(f.fact, "events of ")
	return strings.TrimPrefix(id, "itself"), ok
}

// isStatus reports whether a fact is about the cached status and our value is the model's.
func (f finding) isStatus() bool {
	if _, ok := f.object(); ok || f.fact == "as new as" || strings.HasPrefix(f.fact, "waiter") {
		return false
	}
	return f.Ours == f.facts[f.Fact]
}

// eventsAs reports whether a fact is about events and both values are the model's.
func (f finding) eventsAs() bool {
	id, ok := f.object()
	return ok && f.Ours == f.ours[id] && f.Kubelet == f.kubelet[id]
}

// origin returns the finding of the first step after which neither value has changed.
func (f finding) origin() finding {
	for f.Step > 0 && f.KubeletFacts[f.Step-1][f.Fact] == f.Kubelet && f.OursFacts[f.Step-1][f.Fact] == f.Ours {
		f.Step--
		f.expectation, f.step = f.World.model.steps[f.Step].pods[f.pod], f.World.Steps[f.Step]
	}
	return f
}

// kept reports whether our status of an object is older than the kubelet's.
func (f finding) kept(id string) bool {
	was, known := f.known[id]
	now, kubeletKnown := f.kubeletKnown[id]
	return (known || kubeletKnown) && was != now
}

// keptAny is kept for any object of the pod.
func (f finding) keptAny() bool {
	for id := range f.known {
		if f.kept(id) {
			return true
		}
	}
	for id := range f.kubeletKnown {
		if f.kept(id) {
			return true
		}
	}
	return false
}

func rules() []rule {
	return slices.Concat(labelRules(), eventRules(), freshnessRules(), failureRules(), addressRules(), statusRules(), generatorRules())
}

const straySentence = "The kubelet assigns all sandboxes and containers that name no pod to one pod without a UID; here they are ignored."

func labelRules() []rule {
	const sentence = "The kubelet assigns containers without the pod UID label to a pod without a UID, and its relist of one pod misses sandboxes without that label; here a container without the label belongs to the pod of its sandbox, and a sandbox without the label to the pod in its metadata."
	return []rule{
		{
			Name: "sandboxes and containers without pod: events", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: straySentence,
			Explains: func(s scene) bool { return strings.HasPrefix(s.Fact, "pod /events of x") && s.Ours == "" },
		},
		{
			Name: "sandboxes and containers without pod: counts", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: straySentence,
			Explains: func(s scene) bool {
				sm := s.World.model.steps[s.Step]
				if s.Fact == "running pods" {
					return sm.strays && s.Ours == strconv.Itoa(sm.runs[0]) && s.Kubelet == strconv.Itoa(sm.runs[1])
				}
				return sm.strays && strings.HasSuffix(s.Fact, " containers") && s.Ours == strconv.Itoa(sm.counts[s.Fact]) && s.Kubelet == strconv.Itoa(sm.gauges[s.Fact])
			},
		},
		{
			Name: "missing pod UID label: extra events", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: sentence,
			Explains: func(s scene) bool { return strings.HasPrefix(s.Fact, "pod /events of ") && s.Ours == "" },
		},
		{
			Name: "missing pod UID label", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: sentence,
			Explains: about(func(f finding) bool {
				return f.bare && (f.eventsAs() || f.isStatus() || f.fact == "as new as" && f.Ours == f.fresh && f.Kubelet == f.old)
			}),
		},
		{
			Name: "missing pod UID label: waiters", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: sentence,
			Explains: about(func(f finding) bool {
				return f.bare && strings.HasPrefix(f.fact, "waiter") && (f.Kubelet == "waits" || f.Kubelet == "received the status") && strings.HasPrefix(f.Ours, "received the status")
			}),
		},
	}
}

func eventRules() []rule {
	return []rule{
		{
			Name: "events lost in a full channel", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "The kubelet's channel holds 1,000 events and loses events that do not fit; here no event is lost.",
			Explains: about(func(f finding) bool {
				id, ok := f.object()
				return ok && f.World.Capacity < 1000 && delivered(f.scene) == f.World.Capacity &&
					f.Ours == f.ours[id] && f.Kubelet != f.kubelet[id] && strings.HasPrefix(f.kubelet[id], f.Kubelet)
			}),
		},
		{
			Name: "events while the inspection fails", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "While the inspection of a pod fails, the kubelet does not deliver the pod's events; here they are delivered.",
			Explains: about(func(f finding) bool { return f.eventsAs() && f.parted == "failed" }),
		},
		{
			Name: "removal found by single-pod relist: events", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: goneSentence,
			Explains: about(func(f finding) bool { return f.eventsAs() && f.parted == "gone" }),
		},
		{
			Name: "status contradicting the list: event", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: settledSentence,
			Explains: about(func(f finding) bool {
				id, ok := f.object()
				return ok && id == "" && f.eventsAs() && f.settles && f.Kubelet == "" && f.Ours == "PodSync"
			}),
		},
		{
			Name: "PodSync after reinspection without events", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "If a requested reinspection finds only changes to the state CREATED or UNKNOWN, the kubelet delivers no event, so the request is lost; here the generator delivers a PodSync.",
			Explains: about(func(f finding) bool {
				id, ok := f.object()
				return ok && id == "" && f.eventsAs() && f.onlyChanged && f.reinspected && f.Kubelet == "" && f.Ours == "PodSync"
			}),
		},
	}
}

const settledSentence = "A status may contradict the list, because the state changed in between or an answer of the runtime was wrong. The kubelet keeps such a status until the pod's list changes; here the status is requested again with the next list."

const goneSentence = "The kubelet's relist of one pod does not detect that the pod was removed; here this relist detects the removal."

// delivered returns how many events the kubelet delivered in this step.
func delivered(s scene) (n int) {
	for fact, kinds := range s.KubeletFacts[s.Step] {
		if strings.Contains(fact, "/events of ") {
			n += len(strings.Fields(kinds))
		}
	}
	return n
}

func freshnessRules() []rule {
	return []rule{
		{
			Name: "removal found by single-pod relist: freshness", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: goneSentence,
			Explains: about(func(f finding) bool {
				return f.fact == "as new as" && f.gone && f.Ours == f.fresh && f.Kubelet == f.old
			}),
		},
		{
			Name: "removal found by single-pod relist: immediate freshness", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: goneSentence,
			Explains: func(s scene) bool {
				rest, ok := strings.CutPrefix(s.Fact, "meanwhile/pod ")
				pod, _, _ := strings.Cut(rest, "/")
				e, fact := s.World.model.steps[s.Step].pods[pod], strings.TrimPrefix(s.Fact, "meanwhile/")
				if s.Step > 0 && s.Ours == before(s.OursFacts, s.Step, fact) {
					e = s.World.model.steps[s.Step-1].pods[pod]
				}
				return ok && e.gone && s.Ours == e.fresh && s.Kubelet == before(s.KubeletFacts, s.Step, fact)
			},
		},
		{
			Name: "removal found by single-pod relist: waiters", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: goneSentence,
			Explains: about(func(f finding) bool {
				_, before, ok := f.waiter()
				return ok && (f.gone || before.gone) && strings.HasPrefix(f.Ours, "received the status") && (f.Kubelet == "waits" || f.Kubelet == "received the status")
			}),
		},
		{
			Name: "GetNewerThan with an equal time", Class: judge.Deliberate, Doc: "podcache/doc.go",
			Sentence: "Here a status is new enough if its time is at or after the requested time. In the kubelet an equal time wakes a waiter but does not satisfy a new call.",
			Explains: about(func(f finding) bool {
				w, before, ok := f.waiter()
				return ok && f.Ours == "received the status at once" && (f.Kubelet == "waits" || f.Kubelet == "received the status") && before.fresh == fmt.Sprint("step at ", w.For)
			}),
		},
		{
			Name: "retry of a failed inspection: freshness", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: deadlineSentence,
			Explains: func(s scene) bool {
				rest, ok := strings.CutPrefix(s.Fact, "meanwhile/pod ")
				pod, _, _ := strings.Cut(rest, "/")
				e := s.World.model.steps[s.Step].pods[pod]
				return ok && e.slow && (!e.kubeletInspected || e.queued) && s.Ours == before(s.OursFacts, s.Step, "pod "+pod+"/as new as") &&
					s.Kubelet == "step at "+s.World.Steps[s.Step].At.String()
			},
		},
		{
			Name: "unchanged containers not inspected: freshness", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: keptSentence,
			Explains: func(s scene) bool {
				rest, ok := strings.CutPrefix(s.Fact, "meanwhile/pod ")
				pod, _, _ := strings.Cut(rest, "/")
				e := s.World.model.steps[s.Step].pods[pod]
				return ok && e.slowForKubelet && !e.slow && s.Ours == "step at "+s.World.Steps[s.Step].At.String() &&
					s.Kubelet == before(s.KubeletFacts, s.Step, "pod "+pod+"/as new as")
			},
		},
		{
			Name: "freshness beside another slow pod", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "The kubelet advances the global time of the cache only after it has inspected all changed pods, so one slow inspection delays the readers of all pods; here it delays only the readers of its own pod.",
			Explains: meanwhile,
		},
	}
}

// waiter returns the waiter of a fact, and the model's result for its pod before it began to
// wait.
func (f finding) waiter() (w Waiter, before expectation, ok bool) {
	var number int
	if _, err := fmt.Sscanf(f.fact, "waiter %d", &number); err != nil {
		return Waiter{}, expectation{}, false
	}
	for i, s := range f.World.Steps {
		if number < len(s.Waiters) {
			if i > 0 {
				before = f.World.model.steps[i-1].pods[f.pod]
			}
			return s.Waiters[number], before, true
		}
		number -= len(s.Waiters)
	}
	return Waiter{}, expectation{}, false
}

// before returns a fact of the previous step.
func before(all []judge.Facts, step int, fact string) string {
	if step == 0 {
		return "nothing"
	}
	return all[step-1][fact]
}

// meanwhile reports whether our status of a pod is fresh one second after the beginning of a
// relist that another pod delays.
func meanwhile(s scene) bool {
	rest, ok := strings.CutPrefix(s.Fact, "meanwhile/pod ")
	pod, _, _ := strings.Cut(rest, "/")
	if !ok {
		return false
	}
	sm, step := s.World.model.steps[s.Step], s.World.Steps[s.Step]
	slow, others := sm.pods[pod].slow, false
	for uid, e := range sm.pods {
		others = others || uid != pod && (e.slow || e.slowForKubelet)
	}
	return !slow && others && step.Look.Pod == "" && s.Ours == "step at "+step.At.String() && s.Kubelet != s.Ours
}
