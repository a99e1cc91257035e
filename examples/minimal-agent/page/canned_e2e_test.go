//go:build e2e && linux

package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	neturl "net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/page"
)

const (
	gib = int64(1) << 30
	mib = int64(1) << 20
	// hostile is a hostile name, message or log.
	hostile = `<script>document.title = "owned"</script><img src=x onerror='document.title="owned"'>` + "\u202e\x1b[31m"
)

// canned is a server. The test sets its responses to /status, /explain and /logs.
type canned struct {
	t      *testing.T
	events *eventlog.Log
	asked  atomic.Int64 // number of requests for /status

	mu     sync.Mutex
	status api.Status
	log    string
	addr   string
	stop   func()
}

// start serves the responses of a, at the same address as before. A server of package kubeletapi
// checks requests and serves the page and the events. A proxy in front of that server replaces the
// other responses.
func (a *canned) start(access kubeletapi.Access) (url string) {
	a.t.Helper()
	s, err := kubeletapi.New(kubeletapi.Config{Agent: noPods{}, Page: page.Handler(), Events: a.events, Access: access})
	require.NoError(a.t, err)
	inner, err := s.Listen(a.t.Context(), "127.0.0.1:0")
	require.NoError(a.t, err)
	target, err := neturl.Parse(access.URL(inner.Addr()))
	require.NoError(a.t, err)
	proxy := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: a.replace,
		Transport:      &http.Transport{DisableKeepAlives: true},
		ErrorLog:       log.New(io.Discard, "", 0),
	}}
	if a.addr == "" {
		a.addr = "127.0.0.1:0"
	}
	var outer net.Listener
	until(a.t, "the address is free", func() (err error) {
		outer, err = s.Listen(a.t.Context(), a.addr)
		return err
	})
	a.addr = outer.Addr().String()
	ctx, cancel := context.WithCancel(a.t.Context())
	served, proxied := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Run(ctx, inner) }()
	go func() { proxied <- proxy.Serve(outer) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(a.t, proxy.Close())
		require.ErrorIs(a.t, <-proxied, http.ErrServerClosed)
		require.NoError(a.t, <-served)
	})
	a.t.Cleanup(a.stop)
	return access.URL(outer.Addr())
}

// replace replaces the responses to requests that the server has accepted.
func (a *canned) replace(r *http.Response) error {
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kind, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.Request.URL.Path, "/agent"), "/"), "/")
	var body any
	switch kind {
	case "status":
		a.asked.Add(1)
		out := a.status
		out.Now = time.Now()
		body = out
	case "explain":
		if strings.HasSuffix(name, "/batch") {
			return a.answer(r, http.StatusNotFound, []byte("no such pod: "+hostile))
		}
		at := time.Now().Add(40 * time.Second)
		body = api.Explanation{
			Why:  []string{"container main of " + name + " waits: CrashLoopBackOff", hostile},
			Next: []api.Step{{At: &at, What: "container main starts again"}, {What: "its sandbox stays"}},
			Plan: "start container main\nkeep sandbox", EvictionOrder: "number 2 of 6 in the eviction order for memory.available",
		}
	case "containerLogs":
		return a.answer(r, http.StatusOK, []byte(a.log))
	default:
		return nil
	}
	data, err := json.Marshal(body)
	require.NoError(a.t, err)
	return a.answer(r, http.StatusOK, data)
}

// answer replaces the code and the body of a response.
func (a *canned) answer(r *http.Response, code int, body []byte) error {
	if err := r.Body.Close(); err != nil {
		return err
	}
	r.StatusCode, r.Status = code, http.StatusText(code)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// change modifies the status.
func (a *canned) change(what func(*api.Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what(&a.status)
}

// pod returns a pod of the status, by name.
func pod(s *api.Status, name string) *api.Pod {
	for i := range s.Pods {
		if s.Pods[i].Name == name {
			return &s.Pods[i]
		}
	}
	return nil
}

// newAgent returns an agent with healthy and unhealthy pods.
func newAgent(t *testing.T) *canned {
	t.Helper()
	_, err := chromium() // install Chromium first, because the events would get old during the installation
	require.NoError(t, err)
	a := &canned{t: t, events: eventlog.New(eventlog.Config{}), log: "listening on :8080\n" + hostile + "\n" + strings.Repeat("GET /healthz 200 1ms\n", 20)}
	now := time.Now()
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	main := func(name, image, state string, since time.Duration, restarts int32, probes ...api.Probe) api.Container {
		c := api.Container{Name: name, Kind: "main", Image: image, State: state, Since: ago(since), Restarts: restarts, Ready: state == "running", Probes: probes}
		if state == "running" {
			c.Usage = &api.Usage{Time: now, CPUCores: new(0.034), MemoryBytes: uint64(48 * mib), EphemeralBytes: uint64(3 * mib)}
		}
		return c
	}
	probe := func(kind, result, output string, d time.Duration) api.Probe {
		return api.Probe{Kind: kind, Result: result, Time: ago(d), DurationMS: 1.7, Output: output}
	}
	p := func(name, state string, phase corev1.PodPhase, ready int, restarts int32, up time.Duration, containers ...api.Container) api.Pod {
		out := api.Pod{
			Namespace: "default", Name: name, UID: "uid-" + name, State: state, Phase: phase, Ready: ready, Restarts: restarts,
			Started: ago(up), Containers: containers,
		}
		if phase == corev1.PodRunning {
			out.IP = fmt.Sprintf("10.88.0.%d", len(name))
			out.Usage = &api.Usage{Time: now, CPUCores: new(0.034), MemoryBytes: uint64(48 * mib)}
		}
		e := func(kind, reason, message string) {
			out.Events = append([]api.Event{a.events.Add(api.Event{
				Type: kind, Reason: reason, Message: message, Kind: "Pod", Namespace: "default", Name: name, FieldPath: "spec.containers{main}",
			})}, out.Events...)
		}
		e("Normal", "Started", "Started container main")
		if state == "CrashLoopBackOff" {
			e("Warning", "BackOff", "Back-off restarting failed container main in pod "+name+": "+hostile)
		}
		return out
	}
	exit, done := int32(1), int32(0)
	crashing := main("main", "registry.example/shop/orders:2.14.1", "CrashLoopBackOff", 20*time.Second, 7)
	crashing.ExitCode = &exit
	ended := main("main", "registry.example/shop/report:8", "Completed", time.Hour, 0)
	ended.ExitCode = &done
	sidecar := main("proxy", "registry.example/mesh/proxy:1.30", "running", 50*time.Hour, 0)
	sidecar.Kind = "sidecar"
	a.status = api.Status{
		Agent:   api.Agent{Name: "minimal-agent", Version: "v0.1.0", Started: now.Add(-51 * time.Hour), Adopted: 3},
		Runtime: api.Runtime{Name: "containerd", Version: "v2.4.2", Endpoint: "unix:///run/containerd/containerd.sock"},
		Node: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "edge-07"},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8052596Ki"), "pods": resource.MustParse("110")},
				NodeInfo:    corev1.NodeSystemInfo{OSImage: "Debian GNU/Linux 12 (bookworm)", KernelVersion: "6.1.0-31-amd64", Architecture: "amd64"},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
					{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "node has disk pressure"},
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				},
			},
		},
		Signals: []api.Signal{
			{Name: "imagefs.available", Available: 7 * gib, Capacity: 100 * gib, Time: &now, Thresholds: []api.Threshold{{Text: "imagefs.available<15%", Value: 15 * gib, Since: ago(3 * time.Minute)}}},
			{Name: "memory.available", Available: 5200 * mib, Capacity: 7864 * mib, Time: &now, Thresholds: []api.Threshold{
				{Text: "memory.available<100Mi", Value: 100 * mib}, {Text: "memory.available<10%", Value: 786 * mib, GraceSeconds: 90},
			}},
			{Name: "nodefs.available", Available: 61 * gib, Capacity: 100 * gib, Time: &now, Thresholds: []api.Threshold{{Text: "nodefs.available<10%", Value: 10 * gib}}},
			{Name: "nodefs.inodesFree", Available: 5_900_000, Capacity: 6_553_600, Time: &now, Thresholds: []api.Threshold{{Text: "nodefs.inodesFree<5%", Value: 327_680}}},
			{Name: "pid.available", Capacity: 0, Thresholds: []api.Threshold{{Text: "pid.available<1000", Value: 1000}}},
		},
		Pods: []api.Pod{
			p("batch", "Completed", corev1.PodSucceeded, 0, 0, 2*time.Hour, ended),
			p("cache", "Running", corev1.PodRunning, 1, 0, 26*time.Hour, main("main", "registry.example/redis:8", "running", 26*time.Hour, 0, probe("liveness", "success", "", 3*time.Second))),
			p("dns", "Running", corev1.PodRunning, 1, 1, 50*time.Hour, main("main", "registry.example/coredns:1.13", "running", 9*time.Hour, 1)),
			p("orders", "CrashLoopBackOff", corev1.PodRunning, 0, 7, 12*time.Minute, crashing),
			p("search", "Running", corev1.PodRunning, 1, 2, 3*time.Hour,
				main("main", "registry.example/shop/search:5", "running", 4*time.Minute, 2, probe("liveness", "success", "", time.Second), probe("readiness", "failure", "HTTP probe failed with statuscode: 503", 2*time.Second)), sidecar),
			p("thumbs", "ContainerCreating", corev1.PodPending, 0, 0, 4*time.Second, api.Container{Name: "main", Kind: "main", Image: "registry.example/shop/thumbs:1", State: "ContainerCreating"}),
			p("web", "Running", corev1.PodRunning, 2, 0, 50*time.Hour,
				main("main", "registry.example/shop/web:41", "running", 50*time.Hour, 0, probe("startup", "success", "", 50*time.Hour), probe("readiness", "success", "", 2*time.Second)), sidecar),
		},
		Problems: []string{`orders-canary.yaml: unknown field "spec.contaners"`},
	}
	for _, name := range []string{"runtime", "pleg", "manifests", "workers", "probes", "eviction", "images", "containers", "logs", "oom", "publish"} {
		m := api.Manager{Name: name, OK: true}
		switch name {
		case "workers":
			m.Message = "7 pods"
		case "images":
			m.Message = "last pass 40s ago: 12 images, 3 in use, nothing to remove"
		}
		a.status.Managers = append(a.status.Managers, m)
	}
	return a
}
