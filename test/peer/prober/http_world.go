package prober

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A web is an HTTP probe that runs a few times, and its servers.
type web struct {
	Get     corev1.HTTPGetAction
	Timeout int32
	Period  int32
	Servers []server
	Runs    []run
}

// A server listens on one address.
type server struct {
	Address string
	TLS     tlsKind
}

// A tlsKind is how a server does TLS.
type tlsKind string

const (
	noTLS   tlsKind = ""
	plainly tlsKind = "without ALPN"
	http11  tlsKind = "http/1.1"
	both    tlsKind = "h2 and http/1.1"
	onlyH2  tlsKind = "h2"
	other   tlsKind = "ALPN of another protocol"
	oldTLS  tlsKind = "TLS 1.1"
	broken  tlsKind = "aborted handshake"
)

// A run is the responses of the servers to the requests of one run of the probe, in order.
// The last response is used for all further requests. After is the time before the run.
type run struct {
	After   time.Duration
	Forgets bool // servers close a reused connection when another request arrives
	Hangup  bool // servers close idle connections before the run
	Refuses bool // servers refuse connections
	Stalls  bool // connection attempts hang
	Answers []reply
}

// A reply is the data that a server sends, in pieces.
type reply struct {
	Bytes   string
	Delay   time.Duration // before each piece
	Pieces  int
	Then    ending
	Status  int // of an answer by HTTP/2
	Body    int
	Subject string // its unusual property
}

// An ending is what a server does after its response.
type ending string

const (
	keeps  ending = "keeps the connection open"
	closes ending = "closes the connection"
	resets ending = "resets the connection"
)

const (
	podIP    = "10.0.0.1"
	httpPort = "10.0.0.1:80"
	tlsPort  = "10.0.0.1:443"
)

func drawWeb(d *judge.Draw) web {
	w := web{
		Timeout: 1, Period: judge.Pick[int32](d, 10, 10, 60, 61),
		Servers: []server{
			{Address: httpPort},
			{Address: tlsPort, TLS: judge.Pick(d, http11, plainly, both, onlyH2, other, oldTLS, broken, noTLS)},
			{Address: "10.0.0.1:8080"},
			{Address: "10.0.0.2:80"},
			{Address: "other.example:80"},
			{Address: "[fd00::1]:80"},
			{Address: "other.example:443", TLS: http11},
		},
	}
	d.Chance(10) // keeps the worlds of recorded seeds
	w.Get = drawGet(d)
	if d.Chance(10) {
		w.Timeout = 3
	}
	for range d.Between(1, 3) {
		w.Runs = append(w.Runs, drawRun(d))
	}
	if d.Chance(6) {
		w.Runs = append([]run{keptRun(d)}, w.Runs...)
	}
	return w
}

// keptRun returns a run that leaves an idle connection, perhaps with surplus data, and slow
// redirects for the next run.
func keptRun(d *judge.Draw) run {
	h := httpReply{Proto: "HTTP/1.1", Status: 200, Body: 20, Framing: judge.Pick(d, "length", "Content-Length too small"), End: "\r\n"}
	return run{Answers: []reply{{Bytes: h.String(), Status: 200, Body: 20, Then: keeps, Pieces: 1}}}
}

func drawGet(d *judge.Draw) corev1.HTTPGetAction {
	get := corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}
	if d.Chance(25) {
		get.Scheme, get.Port = corev1.URISchemeHTTPS, intstr.FromInt32(443)
	} else if d.Chance(10) {
		get.Scheme = judge.Pick(d, corev1.URISchemeHTTP, corev1.URIScheme("ftp"), corev1.URIScheme("Http"))
	}
	if d.Chance(15) {
		get.Path = judge.Pick(d, "", "/a?b=c&d", "a b", "/a b", "/%zz", "/a#b", "//x/y", "http://u:p@other.example/x", "/ü", "?q", "/a%2Fb", "u@v:w", "*", "/a\nb", "mailto:x", ":80/x")
	}
	if d.Chance(8) {
		get.Host = judge.Pick(d, "10.0.0.2", "other.example", "fd00::1", "bad host", "10.0.0.1:80", "[fd00::1]")
	}
	if d.Chance(8) {
		get.Port = judge.Pick(d, intstr.FromString("web"), intstr.FromString("80"), intstr.FromString("none"), intstr.FromInt32(0), intstr.FromInt32(70000), intstr.FromString("zero"), intstr.FromString(""))
	}
	if d.Chance(30) {
		for range d.Between(1, 3) {
			if slices.ContainsFunc(get.HTTPHeaders, isInvalid) {
				break // both sides name one of several at random
			}
			get.HTTPHeaders = append(get.HTTPHeaders, corev1.HTTPHeader{
				Name:  judge.Pick(d, "Host", "User-Agent", "Accept", "X-One", "x-one", "Authorization", "Connection", "Content-Length", "bad name", "host", "Accept-Encoding", "", "Transfer-Encoding", "Cookie"),
				Value: judge.Pick(d, "other.example", "", "one", "two", "bad\nvalue", "10.0.0.2:81", "keep-alive", "close", "ü", "0", "a b"),
			})
		}
	}
	return get
}

// isInvalid reports whether a header cannot be sent.
func isInvalid(h corev1.HTTPHeader) bool {
	return !httpguts.ValidHeaderFieldName(h.Name) || !httpguts.ValidHeaderFieldValue(h.Value)
}

func drawRun(d *judge.Draw) run {
	r := run{After: time.Duration(d.Int(3)) * 5 * time.Second, Hangup: d.Chance(10), Forgets: d.Chance(5)}
	if d.Chance(4) {
		r.Refuses = true
	} else if d.Chance(2) {
		r.Stalls = true
	}
	if d.Chance(4) {
		h := httpReply{Proto: "HTTP/1.1", Status: 302, Location: new("/slow"), Framing: "length", End: "\r\n"}
		r.Answers = append(r.Answers, reply{Bytes: h.String(), Status: 302, Then: keeps, Pieces: 2, Delay: 270 * time.Millisecond})
	}
	r.Hangup = r.Hangup || r.Refuses || r.Stalls // a reused connection would be used otherwise
	for range d.Between(1, 3) {
		r.Answers = append(r.Answers, drawReply(d))
	}
	return r
}

// drawReply draws a response: a simple one, or one with one or two unusual properties.
func drawReply(d *judge.Draw) reply {
	h := &httpReply{Proto: "HTTP/1.1", Status: judge.Pick(d, 200, 200, 200, 204, 299, 300, 304, 399, 400, 404, 500, 503, 599), End: "\r\n", Framing: "length"}
	h.Body = judge.Pick(d, 2, 0, 100, 5000, 10<<10-1, 10<<10, 10<<10+1, 20000)
	if d.Chance(30) {
		h.Head = judge.Pick(d, 100, 3000, 3900, 4000, 4096, 4200, 6000, 9000, 14000, 40000)
	}
	if d.Chance(35) {
		h.Status = judge.Pick(d, 302, 301, 303, 307, 308)
		h.Location = new(judge.Pick(d, "/next", "next", "?x=1", "http://10.0.0.1/abs", "http://10.0.0.1:80/abs80", "http://10.0.0.1:8080/port", "https://10.0.0.1/tls",
			"http://10.0.0.2/", "http://other.example/", "//10.0.0.1/x", "//other.example/x", "", "http://%zz/", "ftp://10.0.0.1/", "http://10.0.0.1:81/refused", "/healthz", "http://user:pw@10.0.0.1/auth", "/a#frag", "https://other.example/"))
	}
	if d.Chance(20) {
		h.Framing = judge.Pick(d, "length", "chunked", "close", "Content-Length too large", "Content-Length too small", "last chunk missing", "invalid chunk size", "two Content-Lengths", "Content-Length and chunked", "gzip", "Content-Length not a number", "negative Content-Length", "Content-Length with a plus sign")
	}
	if d.Chance(10) {
		h.Connection = judge.Pick(d, "close", "keep-alive", "Keep-Alive, x", "upgrade")
	}
	if d.Chance(8) {
		h.End = "\n"
	}
	if d.Chance(8) {
		h.Proto = judge.Pick(d, "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "ICY", "")
	}
	if d.Chance(10) {
		h.Odd = judge.Pick(d, "X-A : b", " folded", "\xfc: x", "X-B: \xfc", "no colon", ": empty", "x-c:", "X-D: a\x01b", "X-E: \x7f")
	}
	if d.Chance(8) {
		h.Info = judge.Pick(d, 1, 1, 2, 5, 6)
		h.InfoStatus = judge.Pick(d, 100, 103, 101)
	}
	if d.Chance(3) {
		h.Status = judge.Pick(d, 101, 199, 600, 999, 99, 1000, 0)
	}
	r := reply{Bytes: h.String(), Status: h.Status, Body: h.Body, Subject: h.Framing, Then: judge.Pick(d, keeps, closes), Pieces: 1}
	if d.Chance(4) {
		r.Bytes = judge.Pick(d, "", "garbage\n\n", "HTTP/1.1 200\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n", "HTTP", "\x15\x03\x01\x00\x02\x02\x46", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 20\r\n\r\n", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n")
	}
	if d.Chance(15) {
		r.Pieces, r.Delay = d.Between(2, 6), time.Duration(judge.Pick(d, 0, 10, 70, 270))*time.Millisecond
	}
	if d.Chance(8) {
		r.Bytes = r.Bytes[:d.Int(len(r.Bytes)+1)]
		r.Then = judge.Pick(d, closes, keeps, resets)
	}
	return r
}

// An httpReply is the text of an answer.
type httpReply struct {
	Proto            string
	Status           int
	Head, Body       int
	Location         *string
	Framing          string
	Connection, Odd  string
	End              string
	Info, InfoStatus int
}

// String returns what goes over the wire.
func (h *httpReply) String() string {
	var b strings.Builder
	for range h.Info {
		b.WriteString("HTTP/1.1 " + fmt.Sprint(h.InfoStatus) + " Info\r\nX-Info: 1\r\n\r\n")
	}
	line := func(s string) { b.WriteString(s + h.End) }
	line(fmt.Sprintf("%s %d Reason", h.Proto, h.Status))
	if h.Head > 0 {
		line("X-Long: " + strings.Repeat("h", h.Head))
	}
	if h.Location != nil {
		line("Location: " + *h.Location)
	}
	if h.Connection != "" {
		line("Connection: " + h.Connection)
	}
	if h.Odd != "" {
		line(h.Odd)
	}
	body := text(h.Body)
	for _, l := range framing(h.Framing, len(body)) {
		line(l)
	}
	line("")
	switch h.Framing {
	case "chunked", "Content-Length and chunked", "gzip":
		b.WriteString(chunks(body) + "0\r\n\r\n")
	case "last chunk missing":
		b.WriteString(chunks(body))
	case "invalid chunk size":
		b.WriteString("zz\r\n" + body + "\r\n0\r\n\r\n")
	default:
		b.WriteString(body)
	}
	return b.String()
}

// framing returns the header lines that define the length of a body.
func framing(kind string, length int) []string {
	switch kind {
	case "chunked", "last chunk missing", "invalid chunk size":
		return []string{"Transfer-Encoding: chunked"}
	case "close":
		return nil
	case "Content-Length too large":
		return []string{fmt.Sprintf("Content-Length: %d", length+7)}
	case "Content-Length too small":
		return []string{fmt.Sprintf("Content-Length: %d", length/2)}
	case "two Content-Lengths":
		return []string{fmt.Sprintf("Content-Length: %d", length), fmt.Sprintf("Content-Length: %d", length+1)}
	case "Content-Length and chunked":
		return []string{"Content-Length: 3", "Transfer-Encoding: chunked"}
	case "gzip":
		return []string{"Transfer-Encoding: gzip"}
	case "Content-Length not a number":
		return []string{"Content-Length: abc"}
	case "negative Content-Length":
		return []string{"Content-Length: -1"}
	case "Content-Length with a plus sign":
		return []string{fmt.Sprintf("Content-Length: +%d", length)}
	default:
		return []string{fmt.Sprintf("Content-Length: %d", length)}
	}
}

// text returns a body of a length. All parts of it differ.
func text(length int) string {
	var b strings.Builder
	for b.Len() < length {
		fmt.Fprintf(&b, "%d,", b.Len())
	}
	return b.String()[:length]
}

// chunks returns a body in chunks.
func chunks(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 3000)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String()
}

// pod returns the pod with the probe.
func (w web) pod() (*corev1.Pod, *corev1.Probe) {
	probe := &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: w.Get.DeepCopy()},
		TimeoutSeconds: w.Timeout, PeriodSeconds: w.Period, SuccessThreshold: 1, FailureThreshold: 3,
	}
	return onePod(probe, []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {Name: "zero"}}), probe
}

// String prints the world in a few lines.
func (w web) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "get %+v\ntimeout %d, period %d, TLS %q\n", w.Get, w.Timeout, w.Period, w.Servers[1].TLS)
	for _, r := range w.Runs {
		fmt.Fprintf(&b, "run after %s hangup=%t forgets=%t refuses=%t stalls=%t\n", r.After, r.Hangup, r.Forgets, r.Refuses, r.Stalls)
		for _, a := range r.Answers {
			fmt.Fprintf(&b, "    %q, %d pieces after %s each, then %s\n", short(a.Bytes), a.Pieces, a.Delay, a.Then)
		}
	}
	return b.String()
}
