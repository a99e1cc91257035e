package podsource_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// jsonOf returns a minimal valid manifest, without the kind if it is for a list.
func jsonOf(name, image string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":%q}]}}`, name, image)
}

func listOf(items ...string) string {
	return `{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
}

// transport responds to requests without a network, so that it can be used in a bubble.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// site is a server of manifests, and an HTTP source for it.
type site struct {
	*podsource.HTTP
	t       *testing.T
	respond http.HandlerFunc
	asked   []*http.Request
	log     syncBuffer
}

func newSite(t *testing.T, change ...func(*podsource.HTTPConfig)) *site {
	t.Helper()
	s := &site{t: t}
	cfg := podsource.HTTPConfig{
		URL: "https://user:secret@site.test/pods?token=secret", NodeName: "Node1",
		Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			s.asked = append(s.asked, r)
			w := httptest.NewRecorder()
			s.respond(w, r)
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
			return w.Result(), nil
		})},
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	s.HTTP, err = podsource.NewHTTP(cfg)
	require.NoError(t, err)
	return s
}

func (s *site) serve(body string) {
	s.respond = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

func (s *site) status(code int, header ...string) {
	s.respond = func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func images(pods []*corev1.Pod) string {
	var list []string
	for _, pod := range pods {
		list = append(list, pod.Name+" "+pod.Spec.Containers[0].Image)
	}
	return strings.Join(list, ", ")
}

func TestHTTPConfig_ValidateReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podsource.NewHTTP(podsource.HTTPConfig{Period: -1, Timeout: -1, MaxBytes: -1})
	require.ErrorContains(t, err, "podsource: invalid config")
	for _, want := range []string{"field URL is required", "field NodeName is required", "field Period", "field Timeout", "field MaxBytes"} {
		require.ErrorContains(t, err, want)
	}
	for _, url := range []string{"ftp://x/", "http:///x", "x", "http://user:secret@[/"} {
		err := podsource.HTTPConfig{URL: url, NodeName: "n"}.Validate()
		require.ErrorContains(t, err, "field URL")
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoError(t, podsource.HTTPConfig{URL: "http://h:1/p?q", NodeName: "n"}.Validate())
}

func TestHTTP_ValidResponses(t *testing.T) {
	t.Parallel()
	pod := strings.Replace(jsonOf("a", "i:1"), "{", `{"apiVersion":"v1","kind":"Pod",`, 1)
	for name, c := range map[string]struct{ body, want string }{
		"a pod as JSON":     {pod, "a-node1 i:1"},
		"a pod as YAML":     {yamlOf("a", "i:1"), "a-node1 i:1"},
		"several as YAML":   {yamlOf("a", "i:1") + "---\n" + yamlOf("b", "i:2"), "a-node1 i:1, b-node1 i:2"},
		"a list":            {listOf(jsonOf("b", "i:2"), pod), "b-node1 i:2, a-node1 i:1"},
		"a list as YAML":    {"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: \"i:1\"}]}\n", "a-node1 i:1"},
		"a list of no pods": {listOf(), ""},
		"a list with null":  {`{"apiVersion":"v1","kind":"PodList","items":null}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.serve(c.body)
			res, err := s.Load(t.Context())
			require.NoError(t, err)
			require.Empty(t, res.Problems)
			require.Equal(t, c.want, images(res.Pods))
			for _, pod := range res.Pods {
				require.Equal(t, podspec.SourceHTTP, pod.Annotations[podspec.SourceAnnotation])
			}
		})
	}
}

func TestHTTP_BadResponseKeepsTheLastGoodPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"nothing":       {"", "the response is empty"},
		"a page":        {"<html>", "document 1: must be an object of kind Pod, not a string"},
		"cut off":       {listOf(jsonOf("a", "i:2"))[:50], "document 1: not valid JSON: unexpected end of JSON input"},
		"another list":  {`{"apiVersion":"v1","kind":"List","items":[]}`, `kind: Unsupported value: "List"`},
		"an old list":   {`{"apiVersion":"v0","kind":"PodList","items":[]}`, `apiVersion: Unsupported value: "v0"`},
		"odd list":      {`{"apiVersion":"v1","kind":"PodList","itmes":[]}`, "itmes: Forbidden: unknown field"},
		"one bad item":  {listOf(jsonOf("a", "i:2"), jsonOf("b", "")), "document 2: spec.containers[0].image: Required value"},
		"item of null":  {listOf("null"), "document 1: must be an object of kind Pod, not null"},
		"other kind":    {listOf(`{"apiVersion":"v1","kind":"Secret"}`), `document 1: kind: Unsupported value: "Secret"`},
		"half a kind":   {listOf(`{"kind":"Pod"}`), `document 1: apiVersion: Required value`},
		"only comments": {"# nothing", "the file contains no manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.serve(listOf(jsonOf("a", "i:1")))
			_, err := s.Load(t.Context())
			require.NoError(t, err)
			s.serve(c.body)
			for range 2 {
				res, err := s.Load(t.Context())
				require.NoError(t, err, "the response must be accepted")
				require.Equal(t, "a-node1 i:1", images(res.Pods))
				require.Len(t, res.Problems, 1)
				require.ErrorContains(t, res.Problems[0], "https://user:xxxxx@site.test/pods: ")
				require.ErrorContains(t, res.Problems[0], c.want)
			}
			s.serve(listOf())
			res, err := s.Load(t.Context())
			require.NoError(t, err)
			require.Empty(t, res.Pods)
			require.Empty(t, res.Problems)
			require.Equal(t, 2, strings.Count(s.log.String(), "\n"), s.log.String())
			require.NotContains(t, s.log.String(), "secret@")
			require.NotContains(t, s.log.String(), "token")
		})
	}
}

func TestHTTP_LimitsTheProblemsOfAList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(listOf(strings.Repeat("{},", 1000) + "{}"))
	res, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Problems, 101)
	require.ErrorContains(t, res.Problems[100], "document 101: this document is invalid too")
}

func TestHTTP_TwoPodsOfOneNameInAList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(listOf(jsonOf("a", "i:1"), jsonOf("a", "i:2")))
	res, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a-node1 i:1", images(res.Pods))
	require.ErrorContains(t, res.Problems[0], "document 2: metadata.name: Duplicate value")
}

func TestHTTP_FailedRequestKeepsThePods(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *podsource.HTTPConfig) { c.MaxBytes = 300 })
	s.status(http.StatusServiceUnavailable)
	res, err := s.Load(t.Context())
	require.ErrorContains(t, err, "https://user:xxxxx@site.test/pods: the server answered 503 Service Unavailable")
	require.Len(t, res.Problems, 1)
	s.serve(listOf(jsonOf("a", "i:1")))
	_, err = s.Load(t.Context())
	require.NoError(t, err)

	for want, respond := range map[string]func(){
		"404 Not Found":    func() { s.status(http.StatusNotFound) },
		"204 No Content":   func() { s.status(http.StatusNoContent) },
		"304 Not Modified": func() { s.status(http.StatusNotModified) },
		"the response is larger than the limit of 300 bytes": func() { s.serve(listOf(jsonOf("a", strings.Repeat("x", 300)))) },
	} {
		respond()
		res, err = s.Load(t.Context())
		require.ErrorContains(t, err, want)
		require.Equal(t, "a-node1 i:1", images(res.Pods))
		require.Len(t, s.Problems(), 1)
		require.Zero(t, res.FilesRead)
	}
	s.serve(listOf(jsonOf("a", "i:1")))
	res, err = s.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	require.Zero(t, res.FilesRead, "unchanged content must not be decoded again")
}

func TestHTTP_SendsTheETag(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *podsource.HTTPConfig) {
		c.Header = http.Header{"Authorization": {"Bearer x"}, "Host": {"pods.test"}}
	})
	s.respond = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		fmt.Fprint(w, listOf(jsonOf("a", "i:1")))
	}
	first, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, first.FilesRead)
	second, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Zero(t, second.FilesRead)
	require.Same(t, first.Pods[0], second.Pods[0])
	require.Equal(t, []string{"", `"v1"`}, []string{s.asked[0].Header.Get("If-None-Match"), s.asked[1].Header.Get("If-None-Match")})
	require.Equal(t, "Bearer x", s.asked[1].Header.Get("Authorization"))
	require.Equal(t, "pods.test", s.asked[1].Host)

	// A bad response is still a problem if the server then answers Not Modified.
	s.respond = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"v2"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"v2"`)
		fmt.Fprint(w, "[]")
	}
	for range 3 {
		res, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Len(t, res.Pods, 1)
		require.Len(t, res.Problems, 1)
	}
}

func TestHTTP_CancelledRequestIsNoProblem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.respond = func(http.ResponseWriter, *http.Request) { cancel() }
	res, err := s.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, res.Problems)
	require.NoError(t, s.Run(ctx, func(context.Context, []*corev1.Pod) { t.Error("told") }))
}

func TestHTTP_RunBacksOffAndDeliversChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // for the race detector, which ignores the order by the bubble's time
		var asked []time.Duration
		var told []string
		start := time.Now()
		s := newSite(t)
		set := func(_ context.Context, pods []*corev1.Pod) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, images(pods))
		}
		respond := func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }
		s.respond = func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(start))
			respond(w)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, set) }()
		after := func(pause time.Duration, check func()) {
			time.Sleep(pause) // the bubble's time
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			check()
		}

		after(130*time.Second, func() {
			require.Empty(t, told, "without a response, no pods must be delivered")
			for i, gap := range []time.Duration{1, 2, 4, 8, 16, 20, 20} {
				took := asked[i+1] - asked[i]
				require.GreaterOrEqual(t, took, gap*time.Second)
				require.LessOrEqual(t, took, gap*time.Second*6/5+1)
			}
			require.Equal(t, 1, strings.Count(s.log.String(), "\n"), "repeated failures must be logged once")
			respond = func(w http.ResponseWriter) { fmt.Fprint(w, listOf(jsonOf("a", "i:1"))) }
		})
		after(30*time.Second, func() {
			require.Equal(t, []string{"a-node1 i:1"}, told)
			respond = func(w http.ResponseWriter) { fmt.Fprint(w, listOf()) }
		})
		s.Trigger()
		after(0, func() {
			require.Equal(t, []string{"a-node1 i:1", ""}, told)
			respond = func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "300")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		s.Trigger()
		before := 0
		after(0, func() { before = len(asked) })
		after(299*time.Second, func() { require.Len(t, asked, before, "no request must be sent during Retry-After") })
		after(62*time.Second, func() { require.Len(t, asked, before+1) })

		require.ErrorIs(t, s.Run(t.Context(), set), podsource.ErrRunning)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestHTTP_RequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.respond = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		start := time.Now()
		_, err := s.Load(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

// Over a real connection, with the source's default client.
func TestHTTP_ClosesItsConnections(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	body.Store(listOf(jsonOf("a", "i:1")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, body.Load())
	}))
	defer server.Close()
	told := make(chan string)
	h, err := podsource.NewHTTP(podsource.HTTPConfig{
		URL: server.URL, NodeName: "n", Period: 10 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, func(_ context.Context, pods []*corev1.Pod) { told <- images(pods) }) }()
	require.Equal(t, "a-n i:1", <-told)
	body.Store(yamlOf("a", "i:2"))
	require.Equal(t, "a-n i:2", <-told)
	cancel()
	require.NoError(t, <-done)
}

// TestHTTP_IgnoresPodsAfterMaxPods checks that the same pods are used while the order in the
// response stays the same.
func TestHTTP_IgnoresPodsAfterMaxPods(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var items []string
	for i := range podsource.MaxPods + 3 {
		items = append(items, jsonOf(fmt.Sprintf("p%d", i), "i:1"))
	}
	s.serve(listOf(items...))
	res, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Pods, podsource.MaxPods)
	require.Equal(t, "p0-node1", res.Pods[0].Name)
	require.Equal(t, "p999-node1", res.Pods[podsource.MaxPods-1].Name)
	require.Len(t, res.Problems, 1)
	require.EqualError(t, res.Problems[0], "https://user:xxxxx@site.test/pods: document 1001: "+
		"a source may define at most 1000 pods: ignored pod default/p1000-node1 and all later pods, 3 in total")

	s.serve(listOf(items[:podsource.MaxPods]...))
	res, err = s.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Pods, podsource.MaxPods)
	require.Empty(t, res.Problems)
}

// A bad first response must not define an empty set of pods: the agent would stop the pods that an
// earlier agent has started.
func TestHTTP_BadFirstResponseDefinesNoPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.respond = func(w http.ResponseWriter, _ *http.Request) {
			if len(s.asked) < 3 {
				fmt.Fprintf(w, "<html>%d", len(s.asked))
				return
			}
			fmt.Fprint(w, listOf(jsonOf("a", "i:1")))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.NoError(t, s.Run(ctx, func(_ context.Context, pods []*corev1.Pod) {
			require.Equal(t, "a-node1 i:1", images(pods))
			cancel()
		}))
		require.Len(t, s.asked, 3)
		require.Contains(t, s.log.String(), "must be an object of kind Pod")
	})
}
