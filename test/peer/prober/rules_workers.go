package prober

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// workerRules are about probes for which the kubelet has no worker.
func workerRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "removed probes not added again", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "AddPod of the kubelet stops at the first probe that exists already, so a later probe that was removed is never added again when its container is restarted; here AddPod adds all missing probes.",
			Explains: func(s scene) bool {
				lost := lostWorkers(s)
				switch s.Fact {
				case "ran":
					return len(lost) > 0 && once(s, s.Kubelet) == without(lost, s.Ours)
				case "events":
					return len(lost) > 0 && once(s, s.KubeletFacts[s.Step]["ran"]) == without(lost, s.OursFacts[s.Step]["ran"]) &&
						s.Ours == allEvents(s, s.OursFacts[s.Step]["ran"])
				}
				name, about := about(s.Fact)
				for _, k := range about {
					if lost[name+"/"+k.String()] && s.Ours == byRuns(s, name, k) {
						return true
					}
				}
				return false
			},
		},
	}
}

// without returns the executed commands without those of some probes.
func without(lost map[string]bool, ran string) string {
	var kept []string
	for line := range strings.SplitSeq(ran, "\n") {
		if command := commandOf(line); len(command) < 3 || !lost[command[1]+"/"+command[2]] {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// lostWorkers returns the pod's probes for which the kubelet has no worker, because AddPod
// stops at the first existing worker.
func lostWorkers(s scene) map[string]bool {
	workers := map[string]bool{}
	held := map[string]string{} // the container for which a worker is on hold
	var lost map[string]bool
	ending := false
	s.World.addWorkers(workers)
	past := s.World.history(s.Step)
	for i, st := range s.World.Steps[:s.Step+1] {
		n := past[i]
		if s.World.restarted(past, i) {
			clear(workers)
			clear(held)
		}
		if st.adds(ending) || s.World.restarted(past, i) {
			s.World.addWorkers(workers)
		}
		ending = n.stopped || n.ended()
		for j, c := range s.World.Containers {
			for k := range kinds {
				if st.Op == opAll || st.Op == opProbe && st.Container == j && int(st.Kind) == k {
					s.World.work(workers, held, n, c, prober.Kind(k))
				}
			}
		}
		maps.Copy(held, holds(s, i))
		if st.removes() {
			clear(workers)
			clear(held)
		}
		lost = s.World.missing(workers)
	}
	if past[s.Step].stopped {
		maps.DeleteFunc(lost, func(key string, _ bool) bool { return !strings.HasSuffix(key, "/Readiness") })
	}
	return lost
}

// probed yields the probes of all containers, regular containers first.
func (w world) probed(yield func(container, prober.Kind) bool) {
	for _, init := range []bool{false, true} {
		for _, c := range w.Containers {
			for k, p := range c.Probes {
				if p != nil && c.Init == init && (!c.Init || c.Sidecar) && !yield(c, prober.Kind(k)) {
					return
				}
			}
		}
	}
}

// addWorkers does what the kubelet's AddPod does.
func (w world) addWorkers(workers map[string]bool) {
	for c, k := range w.probed {
		key := c.Name + "/" + k.String()
		if workers[key] {
			return
		}
		workers[key] = true
	}
}

// missing returns the probes that have no worker.
func (w world) missing(workers map[string]bool) map[string]bool {
	all := map[string]bool{}
	for c, k := range w.probed {
		all[c.Name+"/"+k.String()] = true
	}
	maps.DeleteFunc(all, func(key string, _ bool) bool { return workers[key] })
	return all
}

// work stops a worker whose container has terminated for good.
func (w world) work(workers map[string]bool, held map[string]string, n node, c container, k prober.Kind) {
	key := c.Name + "/" + k.String()
	l := n.containers[c.Name[0]-'a']
	switch {
	case n.forgotten:
	case n.ended():
		delete(workers, key)
	case l.ID == "" || held[key] == l.ID:
	case l.State == exited && !w.restarts(n, c, l.Code), l.State == notKnown && !w.restarts(n, c, 137):
		delete(workers, key)
	}
}

// restarts reports whether the kubelet restarts a container.
func (w world) restarts(n node, c container, code int32) bool {
	pod, spec := w.pod(1), c.spec(1)
	if podspec.ShouldRestart(pod, &spec, code) {
		return true
	}
	for i, other := range w.Containers {
		l := n.containers[i]
		if other.Rule != nil && other.Rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers &&
			l.State == exited && matches(other.Rule.ExitCodes, l.Code) {
			return true
		}
	}
	return false
}

func matches(codes *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	return slices.Contains(codes.Values, code) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// holds returns the kubelet's workers that are on hold after a step, with their containers.
func holds(s scene, step int) map[string]string {
	held := map[string]string{}
	for c, k := range s.World.probed {
		all := runs(s.World, s.KubeletFacts[:step+1], c.Name, k, prober.IgnoreErrors)
		id, result := tally(all, c.Probes[k], k, true)
		if k == prober.Startup && result != "" || k == prober.Liveness && result == "Failure" {
			held[c.Name+"/"+k.String()] = id
		}
	}
	return held
}
