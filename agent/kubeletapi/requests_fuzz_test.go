package kubeletapi_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/podcache"
)

// FuzzRequests sends any request for a pod with a running container. No response has control
// characters, and the runtime receives only valid requests.
func FuzzRequests(f *testing.F) {
	for pattern, queries := range badRequests() {
		path := strings.NewReplacer("{namespace}", "ns", "{pod}", "p", "{uid}", "p", "{container}", "c", "{$}", "").Replace(pattern)
		f.Add("GET", path, "", "")
		for _, q := range queries {
			f.Add("GET", path+"?"+q, "", "")
		}
	}
	for _, seed := range []string{
		"/exec/ns/p/c?command=a&command=b&input=1&output=1&error=1&tty=1", "/attach/ns/p/p/c?output=1", "/attach/ns/p/c?output=2", "/exec/ns/p/none?output=1",
		"/portForward/ns/p?port=1&port=2,3", "/portForward/ns/p?port=0", "/portForward/ns/p?port=65536", "/portForward/ns/p?port=x", "/portForward/ns/p?port=",
	} {
		f.Add("POST", seed, "SPDY/3.1", "")
		f.Add("GET", seed, "websocket", "")
	}
	f.Add("POST", "/run/ns/p/c?cmd=a+b", "", "text/plain")
	f.Add("GET", "/containerLogs/ns/p/c?tailLines=all&sinceTime=2026-01-02T03:04:05Z&limitBytes=9&timestamps&previous", "", "")
	pod := podOf("p", agent.Admitted, "c")
	pod.Runtime = &podcache.Status{
		UID: "p", Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "sandbox", State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		Containers: []*runtimeapi.ContainerStatus{{
			Id: "id", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: map[string]string{"io.kubernetes.container.name": "c"},
		}},
	}
	f.Fuzz(func(t *testing.T, method, target, upgrade, accept string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: x\r\nUpgrade: " + upgrade + "\r\nAccept: " + accept + "\r\n\r\n")))
		if err != nil {
			return // net/http responds with 400
		}
		runtime := &streamRuntime{url: "unix://"}
		cfg := everything()
		cfg.Agent = &fake{pods: []agent.Pod{pod}}
		cfg.Pprof, cfg.Access.TokenReviewer, cfg.Streams = false, &tokens{}, runtime
		s, err := kubeletapi.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // streams end at once
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(ctx))
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			require.Equal(t, printable.Lines(w.Body.String(), ""), w.Body.String())
		}
		for _, asked := range runtime.asked {
			switch asked := asked.(type) {
			case *runtimeapi.ExecRequest:
				require.True(t, asked.GetStdin() || asked.GetStdout() || asked.GetStderr())
				require.False(t, asked.GetTty() && asked.GetStderr())
			case *runtimeapi.AttachRequest:
				require.True(t, asked.GetStdin() || asked.GetStdout() || asked.GetStderr())
				require.False(t, asked.GetTty() && asked.GetStderr())
			case *runtimeapi.PortForwardRequest:
				for _, port := range asked.GetPort() {
					require.True(t, port > 0 && port < 1<<16, port)
				}
			}
		}
	})
}
