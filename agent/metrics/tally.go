package metrics

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// tally has the values of all sources together: sums, except relisted and
// cgroupVersion. A pointer or map is nil if no source provides its values;
// nodes is never nil.
type tally struct {
	nodes           map[string]int
	relisted        *time.Time     // oldest of all sources
	desired, active map[string]int // by the label "static"
	ephemeral       int
	mirrors         *int
	working         map[workerState]int
	isObserved      bool
	observed        []*podcache.Status
	cgroupVersion   int // of the last added source that knows the version
	logs            map[logLabels]int64
}

// logLabels are the labels of a container's logs.
type logLabels struct{ uid, namespace, pod, container string }

func (t *tally) addLogs(all []agent.LogUsage) {
	if t.logs == nil {
		t.logs = map[logLabels]int64{}
	}
	for _, l := range all {
		t.logs[logLabels{string(l.Pod.UID), safe(l.Pod.Namespace), safe(l.Pod.Name), safe(l.Container)}] += l.Bytes
	}
}

func (t *tally) add(s *Source) {
	if s.NodeName != "" {
		t.nodes[s.NodeName]++
	}
	if s.RelistedAt != nil {
		if at := s.RelistedAt(); t.relisted == nil || at.Before(*t.relisted) {
			t.relisted = &at
		}
	}
	var known map[types.UID]podworker.Known
	if s.Known != nil {
		known = s.Known()
		t.addKnown(known)
	}
	if s.Desired != nil {
		t.addDesired(s, known)
	}
	if s.Mirrors != nil {
		if t.mirrors == nil {
			t.mirrors = new(int)
		}
		*t.mirrors += s.Mirrors()
	}
	if s.CgroupVersion != nil {
		t.cgroupVersion = cmp.Or(s.CgroupVersion(), t.cgroupVersion)
	}
	if s.LogBytes != nil {
		t.addLogs(s.LogBytes())
	}
	if s.Observed != nil {
		t.isObserved = true
		t.observed = append(t.observed, s.Observed()...)
	}
}

func (t *tally) addDesired(s *Source, known map[types.UID]podworker.Known) {
	if t.desired == nil {
		t.desired = map[string]int{"": 0, "true": 0}
	}
	if t.active == nil && s.Known != nil {
		t.active = map[string]int{"": 0, "true": 0}
	}
	for _, p := range s.Desired() {
		if p == nil {
			continue
		}
		t.desired[static(p)]++
		t.ephemeral += len(p.Spec.EphemeralContainers)
		if k, ok := known[p.UID]; ok && k.Phase < podworker.Terminated {
			t.active[static(p)]++
		}
	}
}

// workerState is the state of a pod's worker, as the labels of working_pods.
type workerState struct{ lifecycle, config, static string }

func (t *tally) addKnown(known map[types.UID]podworker.Known) {
	if t.working == nil {
		t.working = allWorkerStates()
	}
	for _, k := range known {
		t.working[workerStateOf(k)]++
	}
}

// allWorkerStates returns the states that are always exported, each with a
// count of 0.
func allWorkerStates() map[workerState]int {
	counts := map[workerState]int{}
	for _, phase := range []podworker.Phase{podworker.Syncing, podworker.Terminating, podworker.Terminated} {
		counts[workerStateOf(podworker.Known{Phase: phase})] = 0
		for _, orphan := range []bool{false, true} {
			for _, static := range []bool{false, true} {
				counts[workerStateOf(podworker.Known{Phase: phase, Orphan: orphan, Static: static, HasConfig: true})] = 0
			}
		}
	}
	return counts
}

func workerStateOf(k podworker.Known) workerState {
	s := workerState{lifecycle: "terminated", config: "desired"}
	switch k.Phase {
	case podworker.Syncing:
		s.lifecycle = "sync"
	case podworker.Terminating:
		s.lifecycle = "terminating"
	case podworker.Terminated, podworker.Finished:
	}
	switch {
	case !k.HasConfig:
		s.config, s.static = "runtime_only", "unknown"
		return s
	case k.Orphan:
		s.config = "orphan"
	}
	if k.Static {
		s.static = "true"
	}
	return s
}
