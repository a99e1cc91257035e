package prober

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// maxIdle is the longest period over which a connection is kept.
	maxIdle = time.Minute
	// maxRedirects is how many are followed.
	maxRedirects = 10
)

// httpProbe asks for a page.
func (m *Manager) httpProbe(ctx context.Context, j *job) finding {
	port, err := podspec.PortNumber(j.spec.HTTPGet.Port, j.container)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	u := probeURL(j.spec.HTTPGet, address(j.spec.HTTPGet.Host, port, &j.target))
	request, err := newRequest(ctx, u, j.spec.HTTPGet.HTTPHeaders, m.cfg.UserAgent)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	if err := unfit(request, u.Host); err != nil {
		return failed(shown(request.URL), err)
	}
	a := j.redirected
	if a.redirect == nil {
		a, err = m.anew(ctx, j, request)
	}
	switch {
	case errors.Is(err, errNoHTTP1), err == nil && a.redirect != nil:
		return m.follow(j, a, request)
	case err != nil:
		return failed(shown(request.URL), err)
	default:
		return j.judge(a.status, a.body)
	}
}

// again makes the request over the kept connection, if that is still the right one
// and alive. It is not done if it turns out that it was not, or if the answer is to
// go elsewhere.
func (m *Manager) again(ctx context.Context, p *probe, j *job) (f finding, done bool) {
	l := j.kept
	if l == nil {
		return f, false
	}
	j.kept = nil
	if !l.isOf(j) || !l.isFresh() || l.until(j.deadline) != nil {
		l.hangUp()
		return f, false
	}
	m.launch(p, j, l.interrupt)
	a, err := m.exchange(ctx, j, l)
	switch {
	case err == nil && a.redirect == nil:
		return j.judge(a.status, a.body), true
	case err == nil:
		j.redirected = a
		return f, false
	case errors.Is(err, errStale) && ctx.Err() == nil:
		return f, false
	default:
		return failed(l.url, err), true
	}
}

// anew makes the request over a new connection and keeps that, if it is wanted and
// possible.
func (m *Manager) anew(ctx context.Context, j *job, request *http.Request) (answer, error) {
	request.Close = j.opts.FreshConnection || j.timing.period > maxIdle ||
		httpguts.HeaderValuesContainsToken(request.Header["Connection"], "close")
	l := &link{
		url: shown(request.URL), container: j.target.ID, spec: j.spec.HTTPGet, host: j.target.PodIP, once: request.Close,
	}
	var wire bytes.Buffer
	if err := withCredentials(request).Write(&wire); err != nil {
		return answer{}, err
	}
	l.request = wire.Bytes()
	conn, err := m.cfg.Dial(ctx, "tcp", request.URL.Host)
	if err != nil {
		return answer{}, err
	}
	l.conn = conn
	if request.URL.Scheme == "https" {
		t := tls.Client(conn, tlsConfig(request.URL.Hostname(), "http/1.1"))
		if err := t.HandshakeContext(ctx); err != nil {
			l.hangUp()
			if isRefused(err) {
				return answer{}, errNoHTTP1
			}
			return answer{}, err
		}
		l.conn = t
	}
	l.interrupt = func() { _ = l.until(time.Unix(1, 0)) } // if it is closed there is nothing to stop
	deadline, _ := ctx.Deadline()
	if err := l.until(deadline); err != nil {
		l.hangUp()
		return answer{}, err
	}
	return m.exchange(ctx, j, l)
}

// exchange makes the request over l, which it then keeps if it is wanted and possible.
func (m *Manager) exchange(ctx context.Context, j *job, l *link) (answer, error) {
	b, ok := m.buffers.Get().(*buffer)
	if !ok {
		b = &buffer{}
	}
	a, err := l.exchange(ctx, b, j.opts.Redirects)
	if a.redirect != nil { // its body is read from b
		a.link = l
		return a, err
	}
	m.buffers.Put(b)
	if err == nil && a.keep && !l.once {
		j.kept = l
	} else {
		l.hangUp()
	}
	return a, err
}

// errNoHTTP1 says that a server may speak HTTP/2 only.
var errNoHTTP1 = errors.New("the server refused a handshake for HTTP/1.1")

// isRefused says whether the server ended a handshake by an alert. For want of a
// protocol in common that is what it does; which alert it was is not to be had.
func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// tlsConfig is for somebody who wants to know whether a server answers, not who it
// is.
func tlsConfig(host string, protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: protocols}
}

// client returns a net/http client for what is not done here: HTTP/2, and going
// where a response, if there is one, redirects to. It keeps no connection.
func (m *Manager) client(policy RedirectPolicy, first *http.Response) *http.Client {
	transport := &http.Transport{
		DialContext: m.cfg.Dial, TLSClientConfig: tlsConfig("", "h2", "http/1.1"), ForceAttemptHTTP2: true,
		DisableKeepAlives: true, DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: maxAnswer,
	}
	return &http.Client{
		Transport: &resumed{first: first, next: transport},
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			switch {
			case policy == FollowNone, request.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= maxRedirects:
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

// resumed is a transport whose first response is there already.
type resumed struct {
	first *http.Response
	next  http.RoundTripper
}

// RoundTrip is for [http.Client].
func (r *resumed) RoundTrip(request *http.Request) (*http.Response, error) {
	if first := r.first; first != nil {
		r.first = nil
		first.Request = request
		return first, nil
	}
	return r.next.RoundTrip(request)
}

// unread is the body of a redirect, whose connection ends with it.
type unread struct {
	io.Reader
	link *link
}

// Close is for [http.Client].
func (u unread) Close() error {
	u.link.hangUp()
	return nil
}

// follow makes the request by net/http. If a is a redirect, it begins with that.
func (m *Manager) follow(j *job, a answer, request *http.Request) finding {
	if a.redirect != nil {
		a.redirect.Body = unread{a.redirect.Body, a.link}
		// The end of the context ends the body, so that nothing is asked after it.
		_ = a.link.until(time.Time{}) // if it is closed there is nothing to read
		defer context.AfterFunc(request.Context(), a.link.interrupt)()
	}
	response, err := m.client(j.opts.Redirects, a.redirect).Do(request)
	if at, is := errors.AsType[*url.Error](err); is { // as any error of a client
		return failed(at.URL, at.Err)
	}
	defer func() { _ = response.Body.Close() }() // all that matters has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	if err != nil {
		return failed(shown(request.URL), err)
	}
	return j.judge(response.StatusCode, string(body))
}

// judge says what a response means, in the kubelet's words.
func (j *job) judge(status int, body string) finding {
	listed := len(j.opts.Statuses) > 0
	switch {
	case slices.ContainsFunc(j.opts.Statuses, func(r StatusRange) bool { return r.First <= status && status <= r.Last }):
		return finding{outcome: Succeeded, output: body}
	case listed:
		return finding{outcome: Failed, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", status)}
	case status >= 200 && status < 300:
		return finding{outcome: Succeeded, output: body}
	case status >= 300 && status < 400:
		return finding{outcome: Warned, output: "Probe terminated redirects, Response body: " + body}
	default:
		// The body is not repeated: it may say what is nobody's business.
		return finding{outcome: Failed, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", status)}
	}
}

// failed says why there was no answer, in the words of net/http.
func failed(url string, err error) finding {
	why := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		why = err.Error()
	} else if isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
	} else if errors.Is(err, errStale) {
		_, why, _ = strings.Cut(why, "\n") // what there is below it
	}
	return finding{outcome: Failed, output: fmt.Sprintf("Get %q: %s", url, why)}
}

// probeURL returns what an HTTP probe asks for.
func probeURL(h *corev1.HTTPGetAction, address string) *url.URL {
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(h.Scheme)), address
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	return u
}

// newRequest returns the request of a probe.
func newRequest(ctx context.Context, u *url.URL, headers []corev1.HTTPHeader, agent string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		request.Header.Add(h.Name, h.Value)
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	// One that is given empty is meant to be left out.
	setOrOmit(request.Header, "User-Agent", agent)
	setOrOmit(request.Header, "Accept", "*/*")
	return request, nil
}

// withCredentials returns the request with the credentials in its URL, if any. They are
// for this request only, not for those to where it is redirected.
func withCredentials(request *http.Request) *http.Request {
	user := request.URL.User
	if user == nil || request.Header.Get("Authorization") != "" {
		return request
	}
	password, _ := user.Password()
	request = request.Clone(request.Context())
	request.SetBasicAuth(user.Username(), password)
	return request
}

// shown returns what is said of a URL: not the password, as with net/http.
func shown(u *url.URL) string {
	if _, has := u.User.Password(); !has {
		return u.String()
	}
	return strings.Replace(u.String(), u.User.String()+"@", u.User.Username()+":***@", 1)
}

// unfit says why a request cannot be made, as net/http would. A spec may have
// anything in it, and what is written here into one line is read again: the address
// must still be what it was.
func unfit(request *http.Request, address string) error {
	if scheme := request.URL.Scheme; scheme != "http" && scheme != "https" {
		return fmt.Errorf("unsupported protocol scheme %q", scheme)
	}
	for name, values := range request.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("net/http: invalid header field name %q", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("net/http: invalid header field value for %q", name)
			}
		}
	}
	switch u := request.URL; {
	case u.Host == "":
		return errors.New("http: no Host in request URL")
	case u.Host != address:
		return fmt.Errorf("%q is no address of %s", shown(u), address)
	}
	return nil
}

func setOrOmit(h http.Header, name, standard string) {
	switch values, given := h[name]; {
	case !given:
		h.Set(name, standard)
	case values[0] == "" && name == "User-Agent":
		h[name] = []string{""} // to net/http this means none
	case values[0] == "":
		h.Del(name)
	}
}
