package prober

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// endingRules are about probes while their pod terminates.
func endingRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "sidecar probes during pod termination", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet continues the startup and liveness probes of sidecars while their pod terminates; here they stop with the probes of the other containers.",
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
			Name: "unstarted sidecars during pod termination", Class: judge.Deliberate, Doc: inDoc, Ends: true,
			Sentence: "Because of that, a sidecar that has not started when the termination of its pod begins counts as started here, like other containers.",
			Explains: func(s scene) bool {
				name, what, _ := strings.Cut(strings.TrimPrefix(s.Fact, "status "), "/")
				i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name && c.Sidecar })
				return i >= 0 && isStopped(s) && s.World.probe(name, prober.Startup) != nil && s.Kubelet == "false" && s.Ours == "true" &&
					(what == "Started" || s.World.probe(name, prober.Readiness) == nil)
			},
		},
		{
			Name: "UnreadyOnStop during pod termination", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "With [Config].UnreadyOnStop no container is ready after the termination of its pod has begun.",
			Explains: func(s scene) bool {
				want, is := unready(s)
				return is && s.Ours == want
			},
		},
	}
}

// unready returns our expected value with UnreadyOnStop while the pod terminates, if the fact
// depends on it: all probes are removed, and the loss of readiness is announced.
func unready(s scene) (want string, is bool) {
	if !s.World.Unready || !isStopped(s) {
		return "", false
	}
	subject, what, _ := strings.Cut(s.Fact, "/")
	kind, name, _ := strings.Cut(subject, " ")
	switch {
	case s.Fact == "ran", s.Fact == "events":
		return "", true
	case kind == "status" && what == "Ready":
		return "false", true
	case kind == "announced" && what == prober.Readiness.String():
		past := s.World.history(s.Step)
		begins := s.Step > 0 && !past[s.Step-1].stopped
		if now := past[s.Step].containers[name[0]-'a']; begins && now.State == running && s.OursFacts[s.Step-1]["status "+name+"/Ready"] == "true" {
			return now.ID + " Failure", true
		}
		return "", true
	default:
		return "", false
	}
}

// isStopped reports whether the pod is terminating.
func isStopped(s scene) bool {
	past := s.World.history(s.Step)
	return past[s.Step].stopped
}

// withoutSidecars returns the executed commands without the liveness and startup probes of
// sidecars.
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
