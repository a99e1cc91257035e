package prober

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// restartRules are about state of a container from before a restart.
func restartRules() []judge.Rule[world] {
	return []judge.Rule[world]{
		{
			Name: "started state of a replaced container", Class: judge.KubeletDefect, Doc: inDoc, Ends: true,
			Sentence: "The kubelet treats a new container as started if the previous container of the same name had started. So if the kubelet did not observe the exit, it probes readiness and liveness before the startup probe; here only the status of the same container counts.",
			Explains: func(s scene) bool {
				name, found := strings.CutPrefix(s.Fact, "status ")
				name, _, _ = strings.Cut(name, "/")
				return found && replaced(s, name) && s.Kubelet == "true" && s.Ours == "false"
			},
		},
		{
			Name: "readiness across an agent restart", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "After its own restart the kubelet treats a container with a readiness probe as ready if the whole pod was ready; here the container keeps its own readiness.",
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
	}
}

// predates reports whether a container has been running since before the last restart.
func predates(s scene, name string) bool {
	restart := lastOf(s, opRestart)
	i := slices.IndexFunc(s.World.Containers, func(c container) bool { return c.Name == name })
	past := s.World.history(s.Step)
	return restart >= 0 && i >= 0 && past[restart].containers[i].State == running && past[restart].containers[i].ID == past[s.Step].containers[i].ID
}

// saidReady returns whether a container was ready in the last published status before the
// last restart.
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

// saidPodReady returns whether all containers were ready in the last published status.
func saidPodReady(s scene) string {
	sent := lastOf(s, opPublish)
	gone := slices.ContainsFunc(s.World.Steps[sent+1:s.Step+1], step.removes) // and the status is removed with it
	for _, c := range s.World.Containers {
		if sent < 0 || gone || s.KubeletFacts[sent]["status "+c.Name+"/Ready"] != "true" {
			return "false"
		}
	}
	return "true"
}

// replaced reports whether a container replaced one whose termination was not observed.
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
