package lifecycle

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// maxHookBody is the maximum number of bytes that a hook reads of a response
// body. The hook ends only when the body has been read, so a server can prolong
// the hook, for example until the server has drained its connections.
const maxHookBody = 10 << 10

// hookClient returns the client for HTTP hooks; dial opens its connections. A
// hook runs once, so connections are not reused. Certificates are not verified,
// as in the kubelet, because containers rarely have certificates that could be
// verified.
func hookClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       dial,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case req.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= 10:
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

// httpGet sends the hook's request. If the server answers an HTTPS request in
// plain HTTP, httpGet sends the request again in plain HTTP without its
// Authorization header.
func (r *HookRunner) httpGet(ctx context.Context, info HookInfo, get *corev1.HTTPGetAction) ([]byte, error) {
	req, err := hookRequest(ctx, get, info.Hook, r.cfg.UserAgent)
	if err != nil {
		return nil, err
	}
	output, err := r.do(req)
	if req.URL.Scheme != "https" || !errors.Is(err, http.ErrSchemeMismatch) {
		return output, err
	}
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization")
	output, httpErr := r.do(again)
	if httpErr != nil {
		return output, errors.Join(err, httpErr)
	}
	r.cfg.Observer.HTTPFallback(info)
	if r.cfg.Events != nil {
		r.cfg.Events.Eventf(podspec.ContainerReference(info.Pod, info.Container.Name), corev1.EventTypeWarning, LifecycleHTTPFallback,
			"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", again.URL.Host)
	}
	return output, nil
}

// do sends the request and reads at most maxHookBody bytes of the response
// body. It reads nothing if the Content-Length is larger. It ignores an error
// while reading the body.
func (r *HookRunner) do(req *http.Request) ([]byte, error) {
	resp, err := r.cfg.HTTP.Do(req)
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }() // the body is only read: ignore the error
	}
	if err != nil {
		return nil, err
	}
	var body []byte
	if resp.Body != nil && resp.ContentLength <= maxHookBody {
		body, _ = io.ReadAll(io.LimitReader(resp.Body, maxHookBody))
	}
	if r.cfg.FailOnStatus && (resp.StatusCode < 200 || resp.StatusCode >= 400) {
		return body, fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return body, nil
}

// hookRequest builds the HTTP request of a hook, as the kubelet does.
func hookRequest(ctx context.Context, get *corev1.HTTPGetAction, h Hook, userAgent string) (*http.Request, error) {
	host := get.Host
	if host == "" {
		host = h.PodIP
	}
	if host == "" {
		return nil, errors.New("failed to find networking container: the pod has no IP")
	}
	port, err := podspec.PortNumber(get.Port, h.Container)
	if err != nil {
		return nil, err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	target, err := url.Parse(get.Path)
	if err != nil || target.Opaque != "" { // treat get.Path as a path
		target = &url.URL{Path: get.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if req.URL.Host != target.Host { // for example because the scheme contains a slash
		return nil, fmt.Errorf("URL %q does not have the host %s", req.URL, target.Host)
	}
	req.Header = hookHeader(get.HTTPHeaders, userAgent)
	if name := req.Header.Get("Host"); name != "" {
		req.Host = name
	}
	return req, nil
}

// hookHeader returns the hook's headers. It adds User-Agent and Accept if the
// hook does not set them. If the hook sets User-Agent or Accept to an empty
// value, the header is not sent.
func hookHeader(headers []corev1.HTTPHeader, userAgent string) http.Header {
	h := http.Header{}
	for _, header := range headers {
		name := textproto.CanonicalMIMEHeaderKey(header.Name)
		h[name] = append(h[name], header.Value)
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", userAgent)
	}
	switch accept, ok := h["Accept"]; {
	case !ok:
		h.Set("Accept", "*/*")
	case len(accept) > 0 && accept[0] == "":
		h.Del("Accept")
	}
	return h
}
