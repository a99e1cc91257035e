package pleg

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// Reports of our Generator: results, errors, counters and observations. The kubelet has no
// such reports. The facts of its side contain the model's values instead.

// told is the reports of our Generator in one step.
type told struct {
	inspected, changed []string
	result             pleg.Result
	err                error
	ended              int // global relists
}

func (r *oursRun) selector() map[string]string {
	if !r.w.Selector {
		return nil
	}
	r.node.shared = true
	return selector()
}

func (r *oursRun) observer() pleg.Observer {
	return pleg.Observer{
		RelistStart: func() { r.told.ended-- },
		RelistEnd: func(res pleg.Result, err error) {
			if r.told.ended += 2; err == nil {
				r.counts = res
			}
		},
		PodInspected: func(uid types.UID, took time.Duration, err error) {
			text := string(uid)
			if err != nil {
				text += " failed"
			}
			if took < 0 || took > time.Hour {
				text += " took " + took.String()
			}
			r.told.inspected = append(r.told.inspected, text)
		},
		Event: func(e pleg.Event) {
			if e.Type == pleg.ContainerChanged {
				r.told.changed = append(r.told.changed, string(e.PodUID)+" "+e.ContainerID)
			}
		},
	}
}

// report adds the inspections, changes, result and counters of this step to the facts.
func (r *oursRun) report(f judge.Facts) {
	if r.w.cuts() {
		return
	}
	t, s := &r.told, r.pleg.Stats()
	slices.Sort(t.inspected)
	slices.Sort(t.changed)
	f["told inspections"], f["told changes"] = strings.Join(t.inspected, ", "), strings.Join(t.changed, ", ")
	f["told result"] = fmt.Sprintf("%d relists", t.ended)
	if t.ended > 0 && r.told.result.At.Sub(r.began) >= 0 {
		f["told result"] += fmt.Sprintf(": %d pods, %d inspected, %d set aside", t.result.Pods, t.result.Inspecting, t.result.FailedPods)
	}
	f["told error"] = fmt.Sprint(t.err != nil)
	f["told counters"] = fmt.Sprintf("%d relists, %d failed, %d of a pod; %d inspections, %d failed; %d events, %d set aside; idle %t, list error %t",
		s.Relists, s.FailedRelists, s.PodRelists, s.Inspections, s.FailedInspections, s.Events, s.FailedPods,
		s.InProgress == 0 && s.MissedHints == 0, s.ListError != nil)
}

// cuts reports whether a relist of ours is ever cancelled. Then the reports depend on the
// calls in progress at that moment.
func (w *World) cuts() bool {
	return slices.ContainsFunc(w.Steps, func(s Step) bool { return s.Cut > 0 })
}

// A reporter computes the expected reports of our Generator.
type reporter struct {
	w *World
	// counters as in Stats
	relists, failed, single, inspections, failures, events int
	aside                                                  int // before the step
	pods                                                   map[string]*podModel
	listFailed                                             bool
}

func (r *reporter) begin(pods map[string]*podModel) {
	r.pods, r.aside = pods, 0
	for _, p := range pods {
		if p.failures > 0 {
			r.aside++
		}
	}
}

// end returns the facts of a step, or nil if our relist is cancelled.
func (r *reporter) end(s Step, sm stepModel, listed *[]Object) judge.Facts {
	if r.w.cuts() {
		return nil
	}
	var inspected, changed []string
	bad := s.Look.Fails != "" && !s.Look.None
	for _, uid := range uids() {
		e := sm.pods[uid]
		for _, kinds := range e.ours {
			r.events += len(strings.Fields(kinds))
		}
		for _, id := range e.changed {
			changed = append(changed, uid+" "+id)
		}
		if !e.inspected {
			continue
		}
		text := uid
		if r.inspections++; e.failed {
			r.failures++
			text, bad = uid+" failed", true
		}
		inspected = append(inspected, text)
	}
	slices.Sort(changed)
	result := "0 relists"
	switch {
	case s.Look.None:
	case s.Look.Pod != "":
		r.single++
	default:
		if result = "1 relists: 0 pods, 0 inspected, 0 set aside"; listed != nil {
			result = fmt.Sprintf("1 relists: %d pods, %d inspected, %d set aside", podsOf(*listed), len(inspected), r.aside)
		}
		if r.listFailed = listed == nil; r.listFailed {
			r.failed++
		} else {
			r.relists++
		}
	}
	aside := 0
	for _, p := range r.pods {
		if p.failures > 0 {
			aside++
		}
	}
	return judge.Facts{
		"told inspections": strings.Join(inspected, ", "), "told changes": strings.Join(changed, ", "), "told result": result,
		"told error": fmt.Sprint(bad),
		"told counters": fmt.Sprintf("%d relists, %d failed, %d of a pod; %d inspections, %d failed; %d events, %d set aside; idle %t, list error %t",
			r.relists, r.failed, r.single, r.inspections, r.failures, r.events, aside, true, r.listFailed),
	}
}

// atOnce counts the pods whose inspection is complete immediately.
func (sm stepModel) atOnce() (n int) {
	for _, e := range sm.pods {
		if e.inspected && !e.slow {
			n++
		}
	}
	return n
}

// slowForKubelet reports whether an inspection of the kubelet is slow.
func (sm stepModel) slowForKubelet() bool {
	for _, e := range sm.pods {
		if e.slowForKubelet {
			return true
		}
	}
	return false
}

// podsOf counts the pods of a list.
func podsOf(listed []Object) int {
	pods := map[string]bool{}
	for _, o := range listed {
		if o.Pod != "" {
			pods[o.Pod] = true
		}
	}
	return len(pods)
}
