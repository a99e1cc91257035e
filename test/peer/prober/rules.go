package prober

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type scene = judge.Scene[world]

const inDoc = "prober/doc.go"

// stepRules are the rules of prober/steps.
func stepRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "errors are not tried again", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet repeats a run that ends in an error twice at once; here the next run comes a period later.",
			Explains: func(s scene) bool { return s.Fact == "ran" && s.Ours == once(s, s.Kubelet) },
		},
		{
			Name: "counts of the container before", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet goes on counting when a container is replaced, so the first failure of a new container may reach the threshold; here each container has its own count.",
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
			Name: "failure without a run", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet records Failure for each probe of a container that does not run, and kills the container if the result still stands when it runs (again); here only runs lead to a result of a liveness or startup probe.",
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
			Name: "started like its predecessor", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet takes a container for started if a container of the same name was, so after a restart whose exit it did not see, readiness and liveness are probed before the startup probe; here Started is that of the same container.",
			Explains: func(s scene) bool {
				name, found := strings.CutPrefix(s.Fact, "status ")
				name, _, _ = strings.Cut(name, "/")
				return found && replaced(s, name) && s.Kubelet == "true" && s.Ours == "false"
			},
		},
	}
}

// laterRules are more of the rules of prober/steps.
func laterRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "errors that count", Class: judge.Deliberate, Doc: inDoc, Ends: true,
			Sentence: "The kubelet forgets a run that ends in an error; here such a run counts as a failure if the ErrorPolicy of its kind says so.",
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
		{
			Name: "ready before a restart", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "After a restart the kubelet takes a container with a readiness probe for ready if its whole pod was; here the container stays what it was itself.",
			Explains: func(s scene) bool {
				past := s.World.history(s.Step)
				if name, is := strings.CutSuffix(strings.TrimPrefix(s.Fact, "status "), "/Ready"); is {
					alive := past[s.Step]
					return s.Kubelet == saidPodReady(s) && predates(s, name) &&
						(s.Ours == saidReady(s, name) || alive.ended() && s.Ours == "true")
				}
				name, is := strings.CutSuffix(strings.TrimPrefix(s.Fact, "announced "), "/Readiness")
				if !is || s.Step == 0 || !predates(s, name) {
					return false
				}
				fact := "status " + name + "/Ready"
				kubelet, ours := s.KubeletFacts[s.Step-1][fact], s.OursFacts[s.Step-1][fact]
				return kubelet != ours && (s.Ours == "" && (ours == "true") == strings.HasSuffix(s.Kubelet, "Success") ||
					s.Kubelet == "" && (kubelet == "true") == strings.HasSuffix(s.Ours, "Success"))
			},
		},
		{
			Name: "sidecars go on", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet goes on with the startup and liveness probes of sidecars while their pod ends; here they stop with those of the other containers.",
			Explains: func(s scene) bool {
				ran := s.OursFacts[s.Step]["ran"]
				switch {
				case !isStopped(s):
					return false
				case s.Fact == "ran":
					return s.Ours == once(s, withoutSidecars(s, s.Kubelet))
				case s.Fact == "events":
					return ran == once(s, withoutSidecars(s, s.KubeletFacts[s.Step]["ran"])) && s.Ours == allEvents(s, ran)
				}
				name, _ := about(s.Fact)
				i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name && c.Sidecar })
				return i >= 0 && s.Ours == "" && (strings.HasPrefix(s.Fact, "kill ") || strings.HasPrefix(s.Fact, "announced ") && !strings.HasSuffix(s.Fact, "Readiness"))
			},
		},
		{
			Name: "sidecars that have not started", Class: judge.Deliberate, Doc: inDoc, Ends: true,
			Sentence: "Because of that, a sidecar that has not started when its pod begins to end counts as started here, as other containers do.",
			Explains: func(s scene) bool {
				name, what, _ := strings.Cut(strings.TrimPrefix(s.Fact, "status "), "/")
				i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name && c.Sidecar })
				return i >= 0 && isStopped(s) && s.World.probe(name, prober.Startup) != nil && s.Kubelet == "false" && s.Ours == "true" &&
					(what == "Started" || s.World.probe(name, prober.Readiness) == nil)
			},
		},
	}
}

// unreadyRule explains what UnreadyOnStop does.
func unreadyRule() judge.Rule[world] {
	return judge.Rule[world]{
		Name: "unready from the beginning of the end", Class: judge.Deliberate, Doc: inDoc,
		Sentence: "With [Config].UnreadyOnStop nothing is ready any more from the beginning of the end.",
		Explains: func(s scene) bool {
			if !s.World.Unready || !isStopped(s) {
				return false
			}
			name, what, _ := strings.Cut(s.Fact, "/")
			switch {
			case s.Fact == "ran", s.Fact == "events":
				return s.Ours == ""
			case strings.HasPrefix(name, "announced ") && what == "Readiness":
				i := int(name[len(name)-1] - 'a')
				now := s.World.history(s.Step)[s.Step].containers[i]
				was := s.Step > 0 && s.OursFacts[s.Step-1]["status "+string(rune('a'+i))+"/Ready"] == "true"
				return s.Ours == "" && (lastOf(s, opStop) < s.Step && lastOf(s, opDelete) < s.Step || !was) || was && s.Ours == now.ID+" Failure"
			case strings.HasPrefix(name, "status ") && what == "Ready":
				return s.Ours == "false"
			}
			return false
		},
	}
}

// quietRule explains the events that ours does not make.
func quietRule() judge.Rule[world] {
	return judge.Rule[world]{
		Name: "fewer events", Class: judge.Deliberate, Doc: inDoc,
		Sentence: "The kubelet makes an event of each failed run; with EventsOnChange ours makes one of the failure that reaches the threshold, of the first below it, with its number, and of one in EventPeriod.",
		Explains: func(s scene) bool { return s.Fact == "events" && s.World.Quiet && s.Ours == quietEvents(s) },
	}
}

// lostRule explains what follows from a worker that the kubelet has not got.
func lostRule() judge.Rule[world] {
	return judge.Rule[world]{
		Name: "workers that are not made again", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
		Sentence: "AddPod of the kubelet stops at the first probe that is there already, so a probe behind it that has ended is never added again when its container starts once more; here AddPod adds whatever is missing.",
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
	}
}

// without returns the commands that ran, but for those of some probes.
func without(lost map[string]bool, ran string) string {
	var kept []string
	for line := range strings.SplitSeq(ran, "\n") {
		if command := commandOf(line); len(command) < 3 || !lost[command[1]+"/"+command[2]] {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// erred reports whether a run of the probe ended in an error that counts.
func erred(s scene, name string, k prober.Kind) bool {
	return len(runs(s.World, s.OursFacts, name, k, s.World.Errors)) > len(runs(s.World, s.OursFacts, name, k, prober.IgnoreErrors))
}

// lastOf returns the last step with an operation, or -1.
func lastOf(s scene, o op) int {
	for i := s.Step; i >= 0; i-- {
		if s.World.Steps[i].Op == o {
			return i
		}
	}
	return -1
}

// predates reports whether a container runs since before the last restart.
func predates(s scene, name string) bool {
	restart := lastOf(s, opRestart)
	i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name })
	past := s.World.history(s.Step)
	return restart >= 0 && i >= 0 && past[restart].containers[i].State == running && past[restart].containers[i].ID == past[s.Step].containers[i].ID
}

// saidReady returns whether a container was ready by the status that the API server
// got before the last restart.
func saidReady(s scene, name string) string {
	restart := lastOf(s, opRestart)
	sent := -1
	for i := range max(restart, 0) {
		if s.World.Steps[i].Op == opPublish {
			sent = i
		}
	}
	past := s.World.history(s.Step)
	i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name })
	if sent < 0 || i < 0 || past[sent].containers[i].ID != past[s.Step].containers[i].ID {
		return "false"
	}
	return s.OursFacts[sent]["status "+name+"/Ready"]
}

// saidPodReady returns whether all containers were ready by the last status that the
// API server got.
func saidPodReady(s scene) string {
	sent := lastOf(s, opPublish)
	gone := slices.ContainsFunc(s.World.Steps[sent+1:s.Step+1], step.removes) // and with it the status
	for _, c := range s.World.Containers {
		if sent < 0 || gone || s.KubeletFacts[sent]["status "+c.Name+"/Ready"] != "true" {
			return "false"
		}
	}
	return "true"
}

// isStopped reports whether the pod is being ended.
func isStopped(s scene) bool {
	past := s.World.history(s.Step)
	return past[s.Step].stopped
}

// withoutSidecars returns the commands that ran, but for the liveness and startup
// probes of sidecars.
func withoutSidecars(s scene, ran string) string {
	var kept []string
	for line := range strings.SplitSeq(ran, "\n") {
		if command := commandOf(line); len(command) > 2 && command[2] != "Readiness" && s.World.Containers[command[1][0]-'a'].Sidecar {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// once returns the commands that ran, those that ended in an error once.
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

// about returns the container that a fact is about, and the probes that decide it.
func about(fact string) (container string, kinds []prober.Kind) {
	subject, rest, _ := strings.Cut(fact, " ")
	container, what, _ := strings.Cut(rest, "/")
	switch {
	case subject == "kill":
		return container, []prober.Kind{prober.Liveness, prober.Startup}
	case what == "Started", what == "Startup":
		return container, []prober.Kind{prober.Startup}
	case what == "Readiness":
		return container, []prober.Kind{prober.Readiness}
	case what == "Ready":
		return container, []prober.Kind{prober.Readiness, prober.Startup}
	case what == "Liveness":
		return container, []prober.Kind{prober.Liveness}
	default:
		return "", nil
	}
}

// before returns our value of the fact before the step: nothing is announced, and the
// status is what it was.
func before(s scene) string {
	if s.Step == 0 || strings.HasPrefix(s.Fact, "announced ") {
		return ""
	}
	return s.OursFacts[s.Step-1][s.Fact]
}

// A ranProbe is a run of a probe that counts.
type ranProbe struct {
	id   string
	good bool
}

// runs returns the runs of a probe that one side has made and that count, which is
// those that end in an error too if the policy says so.
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

// began returns the step before which neither side knows anything of the probes: the
// last restart of the agent, or removal of the pod.
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

// tally counts runs, as the kubelet does if over is set: a new container goes on with
// the count of the one before. It returns the result for the last container.
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

// leaks reports whether the kubelet's result for a probe comes from counting the runs
// on the container before too.
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

// history returns the runtime after each step.
func (w world) history(last int) []node {
	n := newNode(w)
	var all []node
	for _, s := range w.Steps[:last+1] {
		if s.Op == opStart && s.Container < len(n.containers) && n.containers[s.Container].State == running {
			n.apply(step{Op: opExit, Container: s.Container})
		}
		n.apply(s)
		was := *n
		was.containers = slices.Clone(n.containers)
		all = append(all, was)
	}
	return all
}

// failedIdle reports whether a probe was asked for while its container was there but
// did not run, and the container runs now.
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

// byRuns returns what our value must be if only runs lead to results.
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
		return "true" // it had started before the restart
	default:
		return before(s)
	}
}

// killByRuns returns what is to be killed for if only runs lead to results.
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

// replaced reports whether a container replaced one whose end nobody saw.
func replaced(s scene, container string) bool {
	past := s.World.history(s.Step)
	i := int(container[0] - 'a')
	if s.Step == 0 || s.World.probe(container, prober.Startup) == nil {
		return false
	}
	now, was := past[s.Step].containers[i], past[s.Step-1].containers[i]
	if s.World.Steps[s.Step].Op == opRestart {
		was = live{}
		for j, st := range s.World.Steps[:s.Step] {
			if st.Op == opPublish {
				was = past[j].containers[i]
			}
		}
	}
	return now.State == running && was.State == running && now.ID != was.ID
}
