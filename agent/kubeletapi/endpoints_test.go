package kubeletapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// everything returns a configuration with all endpoints.
func everything() kubeletapi.Config {
	return kubeletapi.Config{
		Agent: &fake{}, Events: fixed{}, PodLogs: "logs",
		Configz: func() map[string]any { return nil },
		Metrics: page(""), ProbeMetrics: page(""), ResourceMetrics: page(""), SLIMetrics: page(""), CadvisorMetrics: page(""), Page: page(""),
		Pprof: true, Flags: func() map[string]string { return nil },
	}
}

// badRequests returns the requests that each endpoint must reject: the queries of its path.
// An endpoint that ignores its request has no bad requests.
func badRequests() map[string][]string {
	output := []string{"output=xml", "output=Text"}
	return map[string][]string{
		"/livez": nil, "/healthz": nil, "/healthz/{check}": nil, "/readyz": nil,
		"/pods": nil, "/pods/{$}": nil, "/runningpods": nil, "/runningpods/{$}": nil,
		"/stats/summary": nil, // accepts any query, as in the kubelet
		"/configz":       nil,
		"/containerLogs/{namespace}/{pod}/{container}": {
			"follow=perhaps", "follow=1&follow=0", "previous=x", "timestamps=2", "tailLines=-1", "tailLines=x", "tailLines=99999999999999999999",
			"limitBytes=0", "limitBytes=1.5", "sinceSeconds=0", "sinceSeconds=1m", "sinceTime=today", "sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", "stream=Both",
		},
		"/agent/status":                    nil,
		"/agent/explain/{namespace}/{pod}": output,
		"/agent/events":                    {"since=x", "since=-1", "since=18446744073709551616", "watch=perhaps", "watch=1&watch=0"},
		"/agent/plan/eviction":             output,
		"/agent/plan/gc":                   output,
		"/agent/images":                    nil,
		"/agent/restart/{namespace}/{pod}": nil, "/agent/pull": nil,
		"/metrics":          nil,
		"/metrics/probes":   nil,
		"/metrics/resource": nil,
		"/metrics/cadvisor": nil,
		"/metrics/slis":     nil,
		"/statusz":          nil,
		"/flagz":            nil,
		"/logs/":            nil, // disabled: see TestEndpoints_Golden
		"/debug/flags/v":    nil, // disabled
		"/{$}":              nil, "/agent/{$}": nil,
		"/exec/{namespace}/{pod}/{container}": nil, "/exec/{namespace}/{pod}/{uid}/{container}": nil,
		"/attach/{namespace}/{pod}/{container}": nil, "/attach/{namespace}/{pod}/{uid}/{container}": nil,
		"/run/{namespace}/{pod}/{container}": nil, "/run/{namespace}/{pod}/{uid}/{container}": nil,
		"/portForward/{namespace}/{pod}": nil, "/portForward/{namespace}/{pod}/{uid}": nil,
		"/debug/pprof/":        nil,
		"/debug/pprof/cmdline": nil,
		"/debug/pprof/symbol":  nil,
		"/debug/pprof/profile": nil,
		"/debug/pprof/trace":   nil,
	}
}

// TestEndpoints_RefuseInvalidRequests fails for a new endpoint without an entry in
// badRequests.
func TestEndpoints_RefuseInvalidRequests(t *testing.T) {
	t.Parallel()
	cfg, want := everything(), badRequests()
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "Info", "Runtime", "Problems", "Checks", "Access", "MaxConnections", "MaxStreams", "StreamIdleTimeout", "WebSocketStream", "Clock", "Logger", "Observer": // fields without endpoints
		case "Streams", "Operations": // without them, their endpoints are disabled: see TestStreams and TestOperations
		case "NoDebugging", "LogLevel", "Checkpoints", "CheckpointDir", "SystemLogs", "Journal": // see TestEndpoints_Golden
		default:
			require.False(t, v.Field(i).IsZero(), "everything() lacks %s", name)
		}
	}
	s, err := kubeletapi.New(cfg)
	require.NoError(t, err)
	var have []string
	for pattern := range want {
		have = append(have, pattern)
	}
	require.ElementsMatch(t, s.Patterns(), have)

	url, _ := run(t, cfg)
	fill := strings.NewReplacer("{namespace}", "ns", "{pod}", "p", "{container}", "c", "{$}", "")
	for pattern, queries := range want {
		path := fill.Replace(pattern)
		for _, q := range queries {
			code, _, body := get(t, http.DefaultClient, url+path+"?"+q)
			require.Equal(t, http.StatusBadRequest, code, "%s?%s", path, q)
			name, _, _ := strings.Cut(q, "=")
			require.Contains(t, body, name, "%s?%s: the response must name the invalid parameter", path, q)
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodTrace, "NONSENSE"} {
			answer := raw(t, url, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			switch {
			case anyMethod(pattern):
				require.NotEqual(t, http.StatusMethodNotAllowed, answer, "%s %s", method, path)
			case pattern == "/stats/summary" && method == http.MethodPost: // as in the kubelet
				require.Equal(t, http.StatusInternalServerError, answer, "the agent has no statistics")
			default:
				require.Equal(t, http.StatusMethodNotAllowed, answer, "%s %s", method, path)
			}
		}
		if pattern != "/livez" {
			require.Equal(t, http.StatusForbidden, raw(t, url, "GET "+path+" HTTP/1.1\r\nHost: evil.example\r\n\r\n"), path)
		}
	}
}

// anyMethod reports whether the kubelet accepts any method for a path. These paths change nothing.
func anyMethod(pattern string) bool {
	switch root := strings.Split(pattern, "/")[1]; root {
	case "configz", "healthz", "metrics", "statusz", "flagz":
		return true
	default:
		return false
	}
}

// raw sends a request unchanged, and returns the status code of the response.
func raw(t *testing.T, url, request string) int {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprint(c, request)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err, request)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

func TestGuard_CoversEveryEndpoint(t *testing.T) {
	t.Parallel()
	url, _ := run(t, everything())
	for request, want := range map[string]int{
		"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                 http.StatusForbidden,
		"GET http://evil.example/pods HTTP/1.1\r\nHost: localhost\r\n\r\n":                 http.StatusForbidden,
		"GET //pods HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                http.StatusForbidden,
		"GET /livez/../pods HTTP/1.1\r\nHost: evil.example\r\n\r\n":                        http.StatusForbidden,
		"GET /livez/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":                               http.StatusForbidden,
		"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                http.StatusOK,
		"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n":                http.StatusForbidden,
		"GET /pods HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n":              http.StatusBadRequest,
		"GET /pods HTTP/1.1\r\n\r\n":                                                       http.StatusBadRequest,
		"GET /pods HTTP/1.0\r\n\r\n":                                                       http.StatusForbidden,
		"GET /containerLogs/ns/p/..%2f..%2fx?follow=x HTTP/1.1\r\nHost: localhost\r\n\r\n": http.StatusBadRequest,
	} {
		require.Equal(t, want, raw(t, url, request), request)
	}
}
