package prober

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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
					return s.Kubelet == "0" && s.Ours == "1" && keeps1(s) && mayKeep(s)
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
				ours := s.Ours
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

// webDefects are the defects of ours among them.
func webDefects() []judge.Rule[web] {
	return []judge.Rule[web]{
		{
			Name: "Host over redirects", Class: judge.DefectOfOurs, Item: "25c",
			Sentence: "The kubelet drops a given Host header when a redirect has an absolute URL; ours keeps it.",
			Explains: func(s webScene) bool {
				n, isRequest := requestNumber(s.Fact)
				first := s.OursFacts[s.Step]["request 1"]
				return isRequest && n > 1 && first != "" && hostOf(s.Ours) == hostOf(first) &&
					s.Kubelet == withHost(s.Ours, hostOf(s.Kubelet))
			},
		},
		{
			Name: "text of broken answers", Class: judge.DefectOfOurs, Item: "25b",
			Sentence: "The kubelet's text of an answer that is no HTTP begins with \"net/http: HTTP/1.x transport connection broken: \"; ours lacks it.",
			Explains: func(s webScene) bool {
				return s.Fact == "text" && s.Ours == strings.Replace(s.Kubelet, "net/http: HTTP/1.x transport connection broken: ", "", 1)
			},
		},
		{
			Name: "texts of heads that break off", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "When the head of an answer does not end, the kubelet's text shows a malformed line, or else the timeout; ours shows a reset or the timeout where the kubelet shows the line, and the line where the kubelet shows the timeout.",
			Explains: func(s webScene) bool {
				const malformed = ": net/http: HTTP/1.x transport connection broken: malformed "
				if s.Fact != "text" || !slices.ContainsFunc(s.World.Runs[s.Step].Answers, breaksInHead) {
					return false
				}
				r := lastAnswer(s)
				if strings.Contains(s.Kubelet, malformed) {
					return r.Then == resets && strings.HasSuffix(s.Ours, ": read: connection reset by peer") ||
						(r.Then == keeps || r.Delay > 0) && strings.HasSuffix(s.Ours, ": timed out")
				}
				_, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
				if !strings.HasSuffix(s.Kubelet, ": timed out") {
					return false
				}
				if _, seen, cut := strings.Cut(s.Ours, `: malformed MIME header: missing colon: "`); cut && r.Delay > 0 {
					return strings.Contains(r.Bytes, "\n"+strings.TrimSuffix(seen, `"`)) // the line so far
				}
				return err != nil && strings.HasSuffix(s.Ours, timeoutText(": "+err.Error()))
			},
		},
		{
			Name: "heads above 4 KiB", Class: judge.DefectOfOurs, Item: "25a",
			Sentence: "An answer fails when its head is above 4 KiB and head and body exceed 14 KiB.",
			Explains: func(s webScene) bool {
				return stopsEarly(s, "multiple Read calls return no data or error", func(r reply) bool {
					head, _, _ := strings.Cut(r.Bytes, "\r\n\r\n")
					return len(head) > 4000 && len(r.Bytes) > 14<<10
				})
			},
		},
		{
			Name: "redirects with a broken body", Class: judge.DefectOfOurs, Item: "25c",
			Sentence: "A redirect whose body breaks off is a failure; the kubelet follows it.",
			Explains: func(s webScene) bool { return stopsEarly(s, breakText(lastAnswer(s)), isBrokenRedirect) },
		},
	}
}

// moreWebDefects are those that nobody knew.
func moreWebDefects() []judge.Rule[web] {
	return []judge.Rule[web]{
		{
			Name: "many informational answers", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "More than five informational answers before the final one are a failure; the kubelet reads on.",
			Explains: func(s webScene) bool {
				return stopsEarly(s, ": too many 1xx informational responses", func(r reply) bool {
					n := strings.Count(r.Bytes, "X-Info: 1")
					return n > 5 || n == 5 && r.Status < 200
				})
			},
		},
		{
			Name: "time for redirects", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A run over a kept connection that is redirected, or whose connection has ended, has its timeout once more.",
			Explains: func(s webScene) bool {
				kubelet, ours := s.KubeletFacts[s.Step], s.OursFacts[s.Step]
				if s.Step == 0 || !keeps1(s) || s.World.Runs[s.Step].Answers[0].Delay == 0 || !strings.HasSuffix(kubelet["text"], ": timed out") {
					return false
				}
				n, isRequest := requestNumber(s.Fact)
				more := fmt.Sprintf("request %d", requestCount(kubelet)+1)
				if isRequest {
					return n > requestCount(kubelet) && s.Kubelet == ""
				}
				return ours[more] != "" && isVerdict(s, lastAnswer(s))
			},
		},
		{
			Name: "credentials over redirects", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "Credentials in the URL of a probe are sent to where the server redirects to; the kubelet sends them to the first URL only.",
			Explains: func(s webScene) bool {
				n, isRequest := requestNumber(s.Fact)
				return isRequest && n > 1 && strings.Contains(s.World.Get.Path, "@") &&
					withHost(withoutCredentials(s.Kubelet), "") == withHost(withoutCredentials(s.Ours), "")
			},
		},
		{
			Name: "texts of ports", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The texts of a port that does not exist differ from the kubelet's.",
			Explains: func(s webScene) bool {
				pod, _ := s.World.pod()
				return s.Fact == "text" && portTexts(s.Kubelet, s.Ours, s.World.Get.Port, pod.Spec.Containers[0].Ports)
			},
		},
	}
}

// keeps1 reports whether our first connection may be kept.
func keeps1(s webScene) bool { return !s.World.Fresh && s.World.Period <= 60 }

// mayKeep reports whether the first answer of a run leaves a connection that can be used
// again: it is whole, the server waits for more, and nobody has asked to close it.
func mayKeep(s webScene) bool {
	if requestCount(s.OursFacts[s.Step]) == 0 || !s.World.keepsAsked() {
		return false
	}
	r := s.World.Runs[s.Step].Answers[0] // where it redirects to is asked over another
	if s.World.Servers[1].TLS == both || s.World.Servers[1].TLS == onlyH2 {
		r = r.plain()
	}
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	return err == nil && r.Then == keeps && !response.Close
}

// keepsAsked reports whether the headers of the probe leave the connection to the two
// sides.
func (w web) keepsAsked() bool {
	return !slices.ContainsFunc(w.Get.HTTPHeaders, func(h corev1.HTTPHeader) bool { return h.Name == "Connection" && h.Value == "close" })
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

// stopsEarly reports whether our run ended in a failure with a text because of the last
// answer that it got, where the kubelet's went on.
func stopsEarly(s webScene, text string, cause func(reply) bool) bool {
	ours := s.OursFacts[s.Step]
	n := requestCount(ours)
	answers := s.World.Runs[s.Step].Answers
	if n == 0 || ours["result"] != "failure" || !strings.HasSuffix(ours["text"], text) || !cause(answers[min(n, len(answers))-1]) {
		return false
	}
	i, isRequest := requestNumber(s.Fact)
	return !isRequest || i > n && s.Ours == ""
}

// withoutCredentials returns a request without its Authorization header.
func withoutCredentials(request string) string {
	return regexp.MustCompile(`(?mi)^Authorization: Basic .*\n`).ReplaceAllString(request, "")
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

// breaksInHead reports whether the head of an answer is bad and does not end, or comes
// slowly.
func breaksInHead(r reply) bool {
	_, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	return r.Delay > 0 || err != nil && r.Then != closes
}

// lastAnswer returns the last answer that ours got in a run.
func lastAnswer(s webScene) reply {
	answers := s.World.Runs[s.Step].Answers
	return answers[max(0, min(requestCount(s.OursFacts[s.Step]), len(answers))-1)]
}

// isVerdict reports whether ours says what an answer means, or that there was none.
func isVerdict(s webScene, r reply) bool {
	result, text := r.verdict()
	if ours := s.OursFacts[s.Step]; ours["result"] == "failure" && result != "failure" {
		return s.Fact == "result" || s.Fact == "text" && strings.HasPrefix(s.Ours, "Get \"")
	}
	return s.Fact == "result" && s.Ours == result || s.Fact == "text" && s.Ours == short(text) ||
		s.Fact == "event" && result == "warning" && s.Ours == short(warningEvent+text) || s.Fact == "open connections" && s.Kubelet == "0" && s.Ours == "1"
}

// breakText returns how our text of an answer ends whose body breaks off.
func breakText(r reply) string {
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	if err != nil {
		return "no answer"
	}
	_, err = io.ReadAll(response.Body)
	switch {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return ": " + err.Error()
	case r.Then == resets:
		return ": read: connection reset by peer"
	case r.Then == keeps || r.Delay > 0 && err == nil:
		return ": timed out"
	default:
		return ": unexpected EOF"
	}
}

// isBrokenRedirect reports whether an answer is a redirect with a body that breaks off.
func isBrokenRedirect(r reply) bool {
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	if err != nil || response.Header.Get("Location") == "" {
		return false
	}
	_, err = io.ReadAll(response.Body)
	return err != nil || r.Delay > 0 || r.Then == resets || response.ContentLength < 0 && r.Then == keeps
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

// hosts finds the host that a request names.
func hosts() *regexp.Regexp { return regexp.MustCompile(`(?m)^(Host|HTTP/2 :authority): (.*)$`) }

// hostOf returns the host that a request names.
func hostOf(request string) string {
	if found := hosts().FindStringSubmatch(request); found != nil {
		return found[2]
	}
	return ""
}

// withHost returns a request with another host.
func withHost(request, host string) string { return hosts().ReplaceAllString(request, "$1: "+host) }

// portTexts reports whether the two texts are those of a port that does not exist.
func portTexts(kubelet, ours string, p intstr.IntOrString, ports []corev1.ContainerPort) bool {
	n, err := int(p.IntVal), error(nil)
	if p.Type == intstr.String {
		if i := slices.IndexFunc(ports, func(c corev1.ContainerPort) bool { return c.Name == p.StrVal }); i >= 0 {
			n = int(ports[i].ContainerPort)
		} else {
			n, err = strconv.Atoi(p.StrVal)
		}
	}
	want := fmt.Sprintf("invalid port number: %d", n)
	if err != nil {
		want = err.Error()
	}
	return kubelet == want && ours == fmt.Sprintf("no port %q in container a, nor a number from 1 to 65535", p.String())
}
