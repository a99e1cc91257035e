package prober

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// eventRules are about which events are recorded.
func eventRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "probe events only on change", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet records an event for each failed run; with EventsOnChange, an event is recorded for the failure that changes the result, for the first failure below the threshold (with the number of the failure), and then once per EventPeriod.",
			Explains: func(s scene) bool { return s.Fact == "events" && s.World.Quiet && s.Ours == quietEvents(s) },
		},
	}
}

// A quiet computes our events with EventsOnChange from the executed commands.
type quiet struct {
	s    scene
	now  time.Duration
	told map[string]outcome
	at   map[string]time.Duration
	past map[string][]ranProbe
	made []string
}

// quietEvents returns the events of the last step.
func quietEvents(s scene) string {
	q := quiet{s: s, told: map[string]outcome{}, at: map[string]time.Duration{}, past: map[string][]ranProbe{}}
	past := s.World.history(s.Step)
	for i, st := range s.World.Steps[:s.Step+1] {
		if i == s.World.began(s.Step) {
			clear(q.told)
			clear(q.at)
			clear(q.past)
		}
		q.now += st.After
		began := q.now
		q.made = nil
		for j, c := range s.World.Containers {
			for k := range kinds {
				if st.Op != opAll && (st.Op != opProbe || st.Container != j || int(st.Kind) != k) {
					continue
				}
				start := q.now
				if c.Probes[k] != nil {
					q.run(i, c, prober.Kind(k))
				}
				if past[i].ended() {
					q.forget(c.Name + "/" + prober.Kind(k).String()) // our manager removes the probe
				}
				if q.now = start; st.outcomeOf(j, k) == hangs {
					q.now += hang
				}
			}
		}
		q.now = began + lasts(st, s.World)
	}
	return strings.Join(q.made, "\n")
}

func (q *quiet) forget(key string) {
	delete(q.told, key)
	delete(q.at, key)
	delete(q.past, key)
}

// run adds a run of a probe, if the step made one.
func (q *quiet) run(step int, c container, k prober.Kind) {
	key, p := c.Name+"/"+k.String(), c.Probes[k]
	id := ""
	for line := range strings.SplitSeq(q.s.OursFacts[step]["ran"], "\n") {
		if command := commandOf(line); len(command) > 2 && command[1] == c.Name && command[2] == k.String() {
			id, _, _ = strings.Cut(line, " ")
		}
	}
	if id == "" {
		return
	}
	command := []string{"check", c.Name, k.String()}
	o := q.s.World.Steps[step].outcomeFor(command)
	if o == hangs {
		q.now += time.Duration(p.Timeout) * time.Second
	}
	_, was := tally(q.past[key], p, k, false)
	if n := len(q.past[key]); n == 0 || was == "" || q.past[key][n-1].id != id {
		was = map[prober.Kind]string{prober.Readiness: "Failure", prober.Liveness: "Success"}[k]
	}
	if o != breaks && o != missing || counts(q.s.World.Errors, o) {
		q.past[key] = append(q.past[key], ranProbe{id: id, good: o == succeeds})
	}
	if o == succeeds {
		return
	}
	counted, is := tally(q.past[key], p, k, false)
	if counted != id {
		is = ""
	}
	last, before := q.at[key], q.told[key]
	q.told[key] = class(o)
	if is != was && is != "" || before != class(o) || last == 0 || q.now-last >= 5*time.Minute {
		q.at[key] = max(q.now, 1)
		q.made = append(q.made, event(q.s.World, command, o, below(q.past[key], p, o)))
	}
}

// allEvents returns the events of a step with EventsAlways, from the commands that ran.
func allEvents(s scene, ran string) string {
	if s.World.Quiet {
		return quietEvents(s)
	}
	var events []string
	for line := range strings.SplitSeq(ran, "\n") {
		command := commandOf(line)
		if len(command) < 3 {
			continue
		}
		if o := s.World.Steps[s.Step].outcomeFor(command); o != succeeds {
			events = append(events, event(s.World, command, o, ""))
		}
	}
	return strings.Join(events, "\n")
}

// class returns the outcome of a run as events contain it.
func class(o outcome) outcome {
	if o == hangs {
		return fails
	}
	if o == missing {
		return breaks
	}
	return o
}

// below returns the text about the number of failures below the threshold, if the threshold
// is not reached.
func below(all []ranProbe, p *probe, o outcome) string {
	if class(o) != fails {
		return ""
	}
	run := int32(0)
	for i := len(all) - 1; i >= 0 && !all[i].good && all[i].id == all[len(all)-1].id; i-- {
		run++
	}
	if run == 0 || run >= p.Failure {
		return ""
	}
	return fmt.Sprintf(" (failure %d of %d)", run, p.Failure)
}

// event returns the text of an event.
func event(w world, command []string, o outcome, tail string) string {
	text := "failed: " + o.output(command)
	switch o {
	case hangs:
		k := slices.IndexFunc([]prober.Kind{0, 1, 2}, func(k prober.Kind) bool { return k.String() == command[2] })
		text = fmt.Sprintf("failed: command timed out: %q timed out after %ds", strings.Join(command, " "), w.probe(command[1], prober.Kind(k)).Timeout)
	case breaks, missing:
		text = "errored and resulted in unknown state: " + string(o)
	default:
	}
	list := "containers"
	if w.Containers[command[1][0]-'a'].Init {
		list = "initContainers"
	}
	return fmt.Sprintf("default/web Pod v1 uid-1 spec.%s{%s} Warning Unhealthy: %s probe %s%s", list, command[1], command[2], text, tail)
}
