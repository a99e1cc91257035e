package prober

import (
	"strings"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// runRules are about which runs count, and for which container.
func runRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "probe errors without immediate retry", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet repeats a run that ends in an error up to twice, without a wait; here the next run follows after a period.",
			Explains: func(s scene) bool { return s.Fact == "ran" && s.Ours == once(s, s.Kubelet) },
		},
		{
			Name: "probe counts of a replaced container", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet continues counting when a container is replaced, so the first failure of a new container may reach the threshold; here each container has its own count.",
			Explains: func(s scene) bool {
				name, about := about(s.Fact)
				for _, k := range about {
					if leaks(s, name, k) && s.Ours == before(s) {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "probe failure without a run", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet records Failure for each probe of a container that is not running, and kills the container if the result is still Failure when the container runs again; here the result of a liveness or startup probe changes only after runs.",
			Explains: func(s scene) bool {
				name, about := about(s.Fact)
				for _, k := range about {
					if failedIdle(s, name, k) && (s.Ours == byRuns(s, name, k) || s.Ours == killByRuns(s, name)) {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "probe errors counted as failures", Class: judge.Deliberate, Doc: inDoc, Ends: true,
			Sentence: "The kubelet ignores a run that ends in an error; here such a run counts as a failure if the ErrorPolicy of its kind counts it.",
			Explains: func(s scene) bool {
				name, about := about(s.Fact)
				for _, k := range about {
					if erred(s, name, k) && s.Ours == byRuns(s, name, k) {
						return true
					}
				}
				return false
			},
		},
	}
}

// erred reports whether a run of the probe ended in an error that counts as a failure.
func erred(s scene, name string, k prober.Kind) bool {
	return len(runs(s.World, s.OursFacts, name, k, s.World.Errors)) > len(runs(s.World, s.OursFacts, name, k, prober.IgnoreErrors))
}

// once returns the executed commands, with repeated tries of failed commands removed.
func once(s scene, ran string) string {
	step := s.World.Steps[s.Step]
	lines := strings.Split(ran, "\n")
	var kept []string
	for i := 0; i < len(lines); i++ {
		kept = append(kept, lines[i])
		if lines[i] == "" {
			continue
		}
		if o := step.outcomeFor(commandOf(lines[i])); (o == breaks || o == missing) && i+2 < len(lines) && lines[i+1] == lines[i] && lines[i+2] == lines[i] {
			i += 2
		}
	}
	return strings.Join(kept, "\n")
}

// commandOf returns the command of a line of "ran".
func commandOf(line string) []string {
	_, rest, _ := strings.Cut(line, "[")
	command, _, _ := strings.Cut(rest, "]")
	return strings.Fields(command)
}

// A ranProbe is a run of a probe that counts.
type ranProbe struct {
	id   string
	good bool
}

// runs returns the counted runs of a probe on one side. Runs that end in an error count if
// the policy demands it.
func runs(w world, facts []judge.Facts, container string, k prober.Kind, policy prober.ErrorPolicy) (all []ranProbe) {
	from := w.began(len(facts) - 1)
	for i, f := range facts {
		if i < from {
			continue
		}
		for line := range strings.SplitSeq(f["ran"], "\n") {
			command := commandOf(line)
			if len(command) < 3 || command[1] != container || command[2] != k.String() {
				continue
			}
			o := w.Steps[i].outcomeFor(command)
			if o != breaks && o != missing || counts(policy, o) {
				id, _, _ := strings.Cut(line, " ")
				all = append(all, ranProbe{id: id, good: o == succeeds})
			}
		}
	}
	return all
}

// began returns the step of the last restart of the agent or of the last removal of the pod, or
// 0 if no such step exists. In this step both sides lose their probe state.
func (w world) began(last int) int {
	if last < 0 {
		return 0
	}
	past := w.history(last)
	for i := last; i >= 0; i-- {
		if w.Steps[i].removes() || w.restarted(past, i) {
			return i
		}
	}
	return 0
}

// restarted reports whether the agent is restarted in a step.
func (w world) restarted(past []node, i int) bool {
	return w.Steps[i].Op == opRestart && past[i].restarts()
}

// counts reports whether an error counts as a failure.
func counts(policy prober.ErrorPolicy, o outcome) bool {
	return policy == prober.CountErrors && o == breaks || policy != prober.IgnoreErrors && o == missing
}

// probe returns a probe of the world.
func (w world) probe(container string, k prober.Kind) *probe {
	return w.Containers[container[0]-'a'].Probes[k]
}

// tally counts runs. If over is set, it counts as the kubelet does: the count of a container
// continues in its replacement. It returns the result for the last container.
func tally(all []ranProbe, p *probe, k prober.Kind, over bool) (id, result string) {
	count, good := int32(0), true
	for _, r := range all {
		if r.id != id {
			result = ""
			if !over {
				count = 0
			}
		}
		if r.good != good {
			count = 0
		}
		id, good = r.id, r.good
		count++
		switch {
		case good && count >= p.Success:
			result = "Success"
		case !good && count >= p.Failure:
			result = "Failure"
		default:
			continue
		}
		if k == prober.Startup || k == prober.Liveness && !good {
			count = 0
		}
	}
	return id, result
}

// leaks reports whether the kubelet's result for a probe also counts runs of the previous
// container.
func leaks(s scene, container string, k prober.Kind) bool {
	p := s.World.probe(container, k)
	if p == nil {
		return false
	}
	all := runs(s.World, s.KubeletFacts, container, k, prober.IgnoreErrors)
	_, kubelet := tally(all, p, k, true)
	_, own := tally(all, p, k, false)
	return kubelet != own
}

// failedIdle reports whether a probe was requested while its container existed but was not
// running, and the container is running now.
func failedIdle(s scene, container string, k prober.Kind) bool {
	past := s.World.history(s.Step)
	i := int(container[0] - 'a')
	now := past[s.Step].containers[i]
	for j, n := range past {
		st := s.World.Steps[j]
		l := n.containers[i]
		probed := st.Op == opAll || st.Op == opProbe && st.Container == i && st.Kind == k
		if probed && now.State == running && l.ID == now.ID && (l.State == created || l.State == notKnown) {
			return true
		}
	}
	return false
}

// byRuns returns our expected value if only runs determine results.
func byRuns(s scene, container string, k prober.Kind) string {
	past := s.World.history(s.Step)
	now := past[s.Step].containers[container[0]-'a']
	p := s.World.probe(container, k)
	if p == nil {
		return "no probe"
	}
	id, result := tally(runs(s.World, s.OursFacts, container, k, s.World.Errors), p, k, false)
	if id != now.ID {
		result = ""
	}
	subject, _, _ := strings.Cut(s.Fact, " ")
	switch {
	case subject == "kill" && result == "Failure":
		return k.String()
	case subject == "kill":
		return ""
	case subject == "announced":
		wasID, was := tally(runs(s.World, s.OursFacts[:s.Step], container, k, s.World.Errors), p, k, false)
		if was == result && wasID == id || result == "" {
			return ""
		}
		return now.ID + " " + result
	case result == "Success":
		return "true"
	case result == "Failure":
		return "false"
	case predates(s, container) && s.World.probe(container, prober.Readiness) == nil:
		return "true" // started before the restart
	default:
		return before(s)
	}
}

// killByRuns returns the probe whose failure must kill the container, if only runs determine
// results.
func killByRuns(s scene, container string) string {
	if !strings.HasPrefix(s.Fact, "kill ") {
		return "not about this"
	}
	var all strings.Builder
	for _, k := range []prober.Kind{prober.Liveness, prober.Startup} {
		if s.World.probe(container, k) != nil {
			all.WriteString(byRuns(s, container, k))
		}
	}
	return all.String()
}
