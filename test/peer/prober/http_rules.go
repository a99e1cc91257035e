package prober

import (
	"regexp"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type webScene = judge.Scene[web]

// webRules are the rules of prober/http.
func webRules() []judge.Rule[web] {
	return []judge.Rule[web]{
		{
			Name: "truncated HTTP response body", Class: judge.KubeletDefect, Doc: inDoc,
			Sentence: "If a response breaks off in its body, the kubelet repeats the request twice and then ignores the run, so the probe of a server that always does this never fails; here such a run is a failure.",
			Explains: func(s webScene) bool {
				if s.KubeletFacts[s.Step]["result"] != "unknown" || s.OursFacts[s.Step]["result"] != "failure" {
					return false
				}
				return s.Fact == "result" || s.Fact == "text" && s.Ours == brokenText(s)
			},
		},
	}
}

// brokenText converts the kubelet's text about a response with a broken body to ours, which
// contains the URL.
func brokenText(s webScene) string {
	url := regexp.MustCompile(`^Get "[^"]*": `).FindString(s.Ours)
	if s.Kubelet == "timed out in the body" {
		return url + "timed out"
	}
	return url + s.Kubelet
}
