package prober

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// httpProbe sends a GET request over a new connection. Errors have the texts of net/http,
// as in the kubelet.
func (m *Manager) httpProbe(ctx context.Context, r *run) finding {
	port, err := podspec.PortNumber(r.spec.HTTPGet.Port, r.container)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	u := probeURL(r.spec.HTTPGet, address(r.spec.HTTPGet.Host, port, &r.target))
	request, err := newRequest(ctx, u, r.spec.HTTPGet.HTTPHeaders, m.cfg.UserAgent)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	if host := request.URL.Host; host != "" && host != u.Host {
		// The scheme or path of a spec must not lead to another host.
		return httpFailure(request, fmt.Errorf("the URL %q of the probe leads to another host than %s", request.URL.Redacted(), u.Host))
	}
	response, err := m.httpClient(ctx, r).Do(request)
	if err != nil {
		return finding{outcome: Failed, output: err.Error()}
	}
	defer func() { _ = response.Body.Close() }() // the body has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	if err != nil {
		return httpFailure(request, err)
	}
	return r.evaluate(response.StatusCode, string(body))
}

// httpFailure returns a failed finding with an error text in the format of net/http.
func httpFailure(request *http.Request, err error) finding {
	return finding{outcome: Failed, output: fmt.Sprintf("Get %q: %v", request.URL.Redacted(), err)}
}

// httpClient returns the client of one run. Each run has its own transport, because a
// shared transport would continue to dial after the run.
func (m *Manager) httpClient(ctx context.Context, r *run) *http.Client {
	return &http.Client{
		Timeout: r.timing.timeout,
		Transport: &http.Transport{
			DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
				return m.dial(ctx, network, address)
			},
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			DisableKeepAlives:   true,
			DisableCompression:  true,
			// A request has a few hundred bytes; the default is 4 KiB.
			WriteBufferSize: 1 << 10,
		},
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			switch {
			case r.opts.Redirects == FollowNone, request.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= maxRedirects:
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

// maxRedirects is the number of redirects at which a run fails.
const maxRedirects = 10

// evaluate returns the result for a response, with the kubelet's texts.
func (r *run) evaluate(status int, body string) finding {
	listed := len(r.opts.Statuses) > 0
	switch {
	case slices.ContainsFunc(r.opts.Statuses, func(r StatusRange) bool { return r.First <= status && status <= r.Last }):
		return finding{outcome: Succeeded, output: body}
	case listed:
		return finding{outcome: Failed, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", status)}
	case status >= 200 && status < 300:
		return finding{outcome: Succeeded, output: body}
	case status >= 300 && status < 400:
		return finding{outcome: Warned, output: "Probe terminated redirects, Response body: " + body}
	default:
		// The body is not included, because it may contain confidential data.
		return finding{outcome: Failed, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", status)}
	}
}

// probeURL returns the URL of an HTTP probe.
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
	// If the spec sets User-Agent or Accept to an empty value, the request omits this header.
	setOrOmit(request.Header, "User-Agent", agent)
	setOrOmit(request.Header, "Accept", "*/*")
	return request, nil
}

func setOrOmit(h http.Header, name, standard string) {
	switch values, given := h[name]; {
	case !given:
		h.Set(name, standard)
	case values[0] == "" && name == "User-Agent":
		h[name] = []string{""} // net/http then sends no such header
	case values[0] == "":
		h.Del(name)
	}
}
