package prober

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// webDefects are the defects of ours among them.
func webDefects(t *testing.T) []judge.Rule[web] {
	t.Helper()
	return []judge.Rule[web]{
		{
			Name: "Host over redirects", Class: judge.DefectOfOurs, Item: "25c",
			Sentence: "The kubelet drops a given Host header when a redirect has an absolute URL; ours keeps it.",
			Explains: func(s webScene) bool {
				n, isRequest := requestNumber(s.Fact)
				first := s.OursFacts[s.Step]["request 1"]
				if isRequest && n > 1 && first != "" && hostOf(s.Ours) == hostOf(first) && s.Kubelet == withHost(s.Ours, hostOf(s.Kubelet)) {
					return true
				}
				return isBadHost(s.World.Get.HTTPHeaders) && refusesHost(s)
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
				if !strings.HasSuffix(s.Kubelet, ": timed out") {
					return false
				}
				_, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
				if n := r.sentWithin(time.Duration(s.World.Timeout) * time.Second); n < len(r.Bytes) {
					_, err = final(bufio.NewReader(strings.NewReader(r.Bytes[:n]))) // the line so far
				}
				return err != nil && strings.HasSuffix(s.Ours, timeoutText(": "+err.Error()))
			},
		},
		{
			Name: "heads above 4 KiB", Class: judge.DefectOfOurs, Item: "25a",
			Sentence: "An answer fails when its head is above 4 KiB and head and body exceed 14 KiB.",
			Explains: func(s webScene) bool {
				r, isFirst := firstAnswer(s)
				return isFirst && r.overflows() && failsAtOnce(s, "multiple Read calls return no data or error")
			},
		},
		{
			Name: "redirects with a broken body", Class: judge.DefectOfOurs, Item: "25c",
			Sentence: "A redirect whose body breaks off is a failure; the kubelet follows it.",
			Explains: func(s webScene) bool {
				r, isFirst := firstAnswer(s)
				if !isFirst || !r.redirects() || s.OursFacts[s.Step]["result"] != "failure" {
					return false
				}
				// It fails as any other answer does that breaks off there.
				asked := askAgain(t, s, func(first *reply) { first.Bytes = strings.Replace(first.Bytes, "\nLocation: ", "\nX-Was-At: ", 1) })
				why := asked["text"]
				if why == "timed out in the body" {
					why = "timed out"
				}
				return asked["result"] == "unknown" && failsAtOnce(s, why)
			},
		},
	}
}

// newWebDefects are the defects of ours that this comparison has found later.
func newWebDefects(t *testing.T) []judge.Rule[web] {
	t.Helper()
	return []judge.Rule[web]{
		{
			Name: "many informational answers", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "More than five informational answers before the final one are a failure; the kubelet reads on.",
			Explains: func(s webScene) bool {
				r, isFirst := firstAnswer(s)
				return isFirst && r.informational() > 5 && failsAtOnce(s, "too many 1xx informational responses")
			},
		},
		{
			Name: "time for redirects", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A run over a kept connection that is redirected, or whose connection has ended, has its timeout once more.",
			Explains: func(s webScene) bool {
				text := s.KubeletFacts[s.Step]["text"]
				if s.Step == 0 || s.OursFacts[s.Step-1]["open connections"] != "1" || s.World.Runs[s.Step].Answers[0].Delay == 0 ||
					!strings.HasSuffix(text, ": timed out") && text != "timed out in the body" {
					return false
				}
				// What remains is as if the first answer had taken no time.
				return explainsAsked(t, s, func(first *reply) { first.Delay = 0 })
			},
		},
		{
			Name: "slow bodies of redirects", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet follows a redirect when its head has come; ours waits for its body, for which the time may run out.",
			Explains: func(s webScene) bool {
				r := s.World.Runs[s.Step].Answers[0]
				if ours := s.OursFacts[s.Step]; ours["request 1"] == "" || strings.HasPrefix(ours["request 1"], "HTTP/2 ") || r.Delay == 0 || r.Pieces == 1 || !r.redirects() {
					return false
				}
				return explainsAsked(t, s, func(first *reply) { first.Pieces, first.Delay = 1, time.Duration(r.awaited())*r.Delay })
			},
		},
		{
			Name: "kept although asked to close", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A connection is kept although a header of the probe asks the server to close it, if the server leaves it open; the kubelet closes it.",
			Explains: func(s webScene) bool {
				return s.Fact == "open connections" && s.Kubelet == "0" && s.Ours == "1" && keeps1(s) && mayKeep(s) && s.World.asksToClose()
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
// again: it is whole, and the server waits for more.
func mayKeep(s webScene) bool {
	if requestCount(s.OursFacts[s.Step]) == 0 {
		return false
	}
	r := s.World.Runs[s.Step].Answers[0] // where it redirects to is asked over another
	if s.World.Servers[1].TLS == both || s.World.Servers[1].TLS == onlyH2 {
		r = r.plain()
	}
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	return err == nil && r.Then == keeps && !response.Close
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
