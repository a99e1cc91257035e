package prober

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type webScene = judge.Scene[web]

const closeLine = "\nConnection: close"

// warningEvent is how the event of a warning begins.
const warningEvent = "default/web Pod v1 uid-1 spec.containers{a} Warning ProbeWarning: Readiness probe warning: "

// webRules are the rules of prober/http.
func webRules() []judge.Rule[web] {
	return []judge.Rule[web]{
		{
			Name: "connections are kept", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet asks servers to close each connection; here it is kept for the next run, unless FreshConnection is set or the period is longer than a minute.",
			Explains: func(s webScene) bool {
				if s.Fact == "open connections" {
					return s.Kubelet == "0" && s.Ours == "1" && keeps1(s) && mayKeep(s) && !s.World.asksToClose()
				}
				return s.Fact == "request 1" && keeps1(s) && s.Ours == strings.Replace(s.Kubelet, closeLine, "", 1)
			},
		},
		{
			Name: "HTTP/1.1 where the server has both", Class: judge.Deliberate, Doc: inDoc,
			Sentence: "The kubelet speaks HTTP/2 with a server that offers it over TLS; here a server that has both is asked by HTTP/1.1.",
			Explains: func(s webScene) bool {
				n, isRequest := requestNumber(s.Fact)
				want := asHTTP1(s.Kubelet)
				if n > 1 || !keeps1(s) {
					want = asHTTP1(s.Kubelet + closeLine)
				}
				ours := regexp.MustCompile(`(?m)^Cookie: \n`).ReplaceAllString(s.Ours, "") // HTTP/2 has no empty one
				if slices.ContainsFunc(s.World.Get.HTTPHeaders, func(h corev1.HTTPHeader) bool { return h.Name == "Connection" }) {
					// HTTP/2 has no such header.
					ours = regexp.MustCompile(`(?m)^Connection: .*\n`).ReplaceAllString(ours, "")
					want = asHTTP1(s.Kubelet)
				}
				if text := s.KubeletFacts[s.Step]["text"]; s.World.Servers[1].TLS == both && strings.Contains(text, ": http2: invalid ") {
					result, text := s.World.Runs[s.Step].Answers[0].plain().verdict()
					return n == 1 && s.Kubelet == "" || s.Fact == "result" && s.Ours == result || s.Fact == "text" && s.Ours == short(text) ||
						s.Fact == "event" && result == "warning" && s.Ours == short(warningEvent+text)
				}
				return isRequest && strings.HasPrefix(s.Kubelet, "HTTP/2") && s.World.Servers[1].TLS == both && ours == want
			},
		},
		{
			Name: "a body that breaks", Class: judge.KubeletDefect, Doc: inDoc,
			Sentence: "The kubelet repeats a request whose answer breaks off in its body twice and then forgets the run, so a server that always does that never fails; here it is a failure.",
			Explains: func(s webScene) bool {
				if s.KubeletFacts[s.Step]["result"] != "unknown" || s.OursFacts[s.Step]["result"] != "failure" {
					return false
				}
				return s.Fact == "result" || s.Fact == "text" && s.Ours == brokenText(s)
			},
		},
	}
}

// keeps1 reports whether our first connection may be kept.
func keeps1(s webScene) bool { return !s.World.Fresh && s.World.Period <= 60 }

// mayKeep reports whether the first answer of a run leaves a connection that can be used
// again: it is whole, no redirect, and the server waits for more.
func mayKeep(s webScene) bool {
	if requestCount(s.OursFacts[s.Step]) == 0 {
		return false
	}
	r := s.World.Runs[s.Step].Answers[0]
	if s.World.Servers[1].TLS == both || s.World.Servers[1].TLS == onlyH2 {
		r = r.plain()
	}
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	return err == nil && r.Then == keeps && !response.Close && !redirects(response)
}

// redirects reports whether an answer names another place to ask.
func redirects(r *http.Response) bool {
	return slices.Contains([]int{301, 302, 303, 307, 308}, r.StatusCode) && r.Header.Get("Location") != ""
}

// asksToClose reports whether a header of the probe asks the server to close the
// connection.
func (w web) asksToClose() bool {
	return slices.ContainsFunc(w.Get.HTTPHeaders, func(h corev1.HTTPHeader) bool { return h.Name == "Connection" && h.Value == "close" })
}

// verdict returns what a plain answer means.
func (r reply) verdict() (result, text string) {
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(r.Bytes)), nil)
	if err != nil {
		return "", ""
	}
	_, body, _ := strings.Cut(r.Bytes, "\r\n\r\n")
	body = body[:min(len(body), 10<<10)]
	switch {
	case response.StatusCode < 300:
		return "success", body
	case response.StatusCode < 400:
		return "warning", "Probe terminated redirects, Response body: " + body
	default:
		return "failure", fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
}

// requestNumber returns the number of the request that a fact is about.
func requestNumber(fact string) (int, bool) {
	text, found := strings.CutPrefix(fact, "request ")
	n, err := strconv.Atoi(text)
	return n, found && err == nil
}

// asHTTP1 returns a request by HTTP/2 as one by HTTP/1.1.
func asHTTP1(request string) string {
	fields := map[string]string{}
	var lines []string
	for line := range strings.SplitSeq(request, "\n") {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "HTTP/2 "), ": ")
		if strings.HasPrefix(name, ":") {
			fields[name] = value
			continue
		}
		if name == "" {
			continue
		}
		parts := strings.Split(name, "-")
		for i, p := range parts {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
		lines = append(lines, strings.Join(parts, "-")+": "+value)
	}
	lines = append(lines, "Host: "+fields[":authority"])
	slices.Sort(lines)
	return fmt.Sprintf("%s %s %s HTTP/1.1\n%s", tlsPort, fields[":method"], fields[":path"], strings.Join(lines, "\n"))
}

// requestCount returns how many requests a side made.
func requestCount(f judge.Facts) (n int) {
	for f[fmt.Sprintf("request %d", n+1)] != "" {
		n++
	}
	return n
}

// final reads an answer that is not only informational.
func final(in *bufio.Reader) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, err
		}
	}
}

// brokenText returns our text of an answer whose body breaks, from the kubelet's, with
// the URL that ours has.
func brokenText(s webScene) string {
	url := regexp.MustCompile(`^Get "[^"]*": `).FindString(s.Ours)
	if s.Kubelet == "timed out in the body" {
		return url + "timed out"
	}
	return url + s.Kubelet
}
