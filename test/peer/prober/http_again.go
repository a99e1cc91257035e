package prober

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	kubelethttp "k8s.io/kubernetes/pkg/probe/http"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// askAgain returns what the kubelet does in a run whose first answer is another. Those
// after it stay. The kubelet keeps nothing from one run to the next.
func askAgain(t *testing.T, s webScene, change func(first *reply)) judge.Facts {
	t.Helper()
	w, r := s.World, s.World.Runs[s.Step]
	rest := r.Answers[min(1, len(r.Answers)-1):] // the last is repeated
	r.Answers = slices.Concat(r.Answers[:1], rest)
	change(&r.Answers[0])
	w.Runs = []run{r}
	return playWebKubelet(t, w)[0]
}

// explainsAsked reports whether our value is the kubelet's in a run whose first answer is
// another, or follows from that by other rules.
func explainsAsked(t *testing.T, s webScene, change func(first *reply)) bool {
	t.Helper()
	was, asked := s.Kubelet, askAgain(t, s, change)
	s.Kubelet, s.KubeletFacts = asked[s.Fact], append(slices.Clone(s.KubeletFacts[:s.Step]), asked)
	return was != s.Kubelet && (s.Kubelet == s.Ours || slices.ContainsFunc(slices.Concat(webRules(), webDefects(t)), func(r judge.Rule[web]) bool { return r.Explains(s) }))
}

// firstAnswer returns what ours got for the only request that it made by HTTP/1.1.
func firstAnswer(s webScene) (r reply, isFirst bool) {
	ours := s.OursFacts[s.Step]
	if requestCount(ours) != 1 || strings.HasPrefix(ours["request 1"], "HTTP/2 ") {
		return reply{}, false
	}
	r = s.World.Runs[s.Step].Answers[0]
	if kind := s.World.Servers[1].TLS; strings.HasPrefix(ours["request 1"], tlsPort+" ") && (kind == both || kind == onlyH2) {
		r = r.plain()
	}
	return r, true
}

// failsAtOnce reports whether our value is that of a run whose first answer is a failure,
// for a reason. Nothing follows it, and the connection is not kept.
func failsAtOnce(s webScene, why string) bool {
	want := judge.Facts{"result": "failure", "text": short(fmt.Sprintf("Get %q: %s", s.World.url(), why)), "open connections": "0"}
	return s.Fact != "request 1" && s.Ours == want[s.Fact]
}

// url returns the first URL of the probe, as texts have it.
func (w web) url() string {
	pod, _ := w.pod()
	request, err := kubelethttp.NewRequestForHTTPGetAction(&w.Get, &pod.Spec.Containers[0], podIP, "probe")
	if err != nil {
		return ""
	}
	return withoutPassword(request.URL)
}

func withoutPassword(u *url.URL) string {
	if password, given := u.User.Password(); given {
		return strings.Replace(u.String(), ":"+password+"@", ":***@", 1)
	}
	return u.String()
}

// overflows reports whether ours has no room for an answer: it is of the plain form, its
// head is above 4 KiB, and the head and what is read of the body are more than 14.
func (r reply) overflows() bool {
	head, _, ends := strings.Cut(r.Bytes, "\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(r.Bytes)), nil)
	if !ends || err != nil || response.StatusCode < 200 || response.StatusCode >= 300 && response.StatusCode < 400 {
		return false
	}
	size := len(head) + len("\r\n\r\n")
	return size > 4<<10 && size <= 14<<10 && size+int(min(response.ContentLength, 10<<10)) > 14<<10 && len(r.Bytes) >= 14<<10
}

// redirects reports whether an answer names another place to ask.
func (r reply) redirects() bool {
	response, err := final(bufio.NewReader(strings.NewReader(r.Bytes)))
	return err == nil && slices.Contains([]int{301, 302, 303, 307, 308}, response.StatusCode) && response.Header.Get("Location") != ""
}

// sentWithin returns how many bytes of an answer come within a time.
func (r reply) sentWithin(d time.Duration) (n int) {
	for i := range r.Pieces {
		if time.Duration(i+1)*r.Delay < d {
			n += (len(r.Bytes) - n) / (r.Pieces - i)
		}
	}
	return n
}

// awaited returns how many pieces of an answer ours waits for: until it has 10 KiB of the
// body, or all.
func (r reply) awaited() int {
	sent := 0
	for i := range r.Pieces {
		sent += (len(r.Bytes) - sent) / (r.Pieces - i)
		response, err := final(bufio.NewReader(strings.NewReader(r.Bytes[:sent])))
		if err != nil {
			continue
		}
		_, err = io.CopyN(io.Discard, response.Body, 10<<10)
		byEnd := response.ContentLength < 0 && len(response.TransferEncoding) == 0
		if err == nil || errors.Is(err, io.EOF) && !byEnd {
			return i + 1
		}
	}
	return r.Pieces
}

// informational returns how many informational answers come before the final one.
func (r reply) informational() (n int) {
	in := bufio.NewReader(strings.NewReader(r.Bytes))
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return n
		}
		n++
	}
}

// isBadHost reports whether the probe has a host that HTTP/2 refuses to send.
func isBadHost(headers []corev1.HTTPHeader) bool {
	i := slices.IndexFunc(headers, func(h corev1.HTTPHeader) bool { return http.CanonicalHeaderKey(h.Name) == "Host" })
	if i < 0 {
		return false
	}
	host, err := httpguts.PunycodeHostPort(headers[i].Value)
	return err == nil && !httpguts.ValidHostHeader(host)
}

// refusesHost reports whether our value is that of a run that fails where the kubelet goes
// on by HTTP/2, because the host is bad.
func refusesHost(s webScene) bool {
	n := requestCount(s.OursFacts[s.Step]) + 1
	next, isTwo := strings.CutPrefix(s.KubeletFacts[s.Step][fmt.Sprintf("request %d", n)], "HTTP/2 ")
	if n == 1 || !isTwo {
		return false
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(next, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		fields[name] = value
	}
	want := judge.Facts{"result": "failure", "text": fmt.Sprintf("Get \"https://%s%s\": http2: invalid Host header", fields[":authority"], fields[":path"])}
	if i, isRequest := requestNumber(s.Fact); isRequest && i < n || s.Fact == "open connections" {
		return false
	}
	return s.Ours == want[s.Fact]
}
