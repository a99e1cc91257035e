package lists

import (
	"context"
	"go/ast"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestLists(t *testing.T) {
	klog.SetLogger(logr.Discard())
	kubernetes := moduleDir(t, "k8s.io/kubernetes")
	ours, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	for _, l := range []list{
		{"http", "The methods and paths of the kubelet's server.", paths(), hasPath(t)},
		{"metrics", "The kubelet's metrics with type and labels.", metricsOf(), hasMetric(t, ours)},
		{"events", "The reasons of the kubelet's events.", reasons(t, kubernetes), hasReason(t, ours)},
		{"flags", "The kubelet's flags.", flags(t), hasFlag(t, ours)},
		{"config", "The fields of a KubeletConfiguration.", configFields(), hasField()},
		{"gates", "The feature gates that the kubelet reads, with stage and default.", gates(t, kubernetes), nil},
	} {
		t.Run(l.name, func(t *testing.T) {
			if os.Getenv("PEER_REWRITE") != "" {
				l.write(t)
				return
			}
			l.check(t)
		})
	}
}

// idle is an agent without pods.
type idle struct{ kubeletapi.Agent }

func (idle) Pods() []agent.Pod                                  { return nil }
func (idle) Node() *corev1.Node                                 { return &corev1.Node{} }
func (idle) Health() []agent.Check                              { return nil }
func (idle) Summary(context.Context) (*statsapi.Summary, error) { return &statsapi.Summary{}, nil }

// noStreams is a runtime whose streaming methods are never called.
type noStreams struct{ kubeletapi.Streams }

// noCheckpoints is a runtime whose checkpoint method is never called.
type noCheckpoints struct{ kubeletapi.Checkpointer }

// hasPath returns a function that reports whether agent/kubeletapi serves a path with a
// method, or with any method. The response for a missing pod or container differs from that
// for an unknown path.
func hasPath(t *testing.T) func(string) bool {
	t.Helper()
	text := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	s, err := kubeletapi.New(kubeletapi.Config{
		Agent: idle{}, PodLogs: t.TempDir(), Streams: noStreams{}, Access: kubeletapi.Access{TokenFile: token},
		Configz: func() map[string]any { return nil },
		Metrics: text, ProbeMetrics: text, ResourceMetrics: text, SLIMetrics: text, CadvisorMetrics: text, Pprof: true,
		Flags: func() map[string]string { return nil }, LogLevel: new(slog.LevelVar), SystemLogs: "/var/log",
		Checkpoints: noCheckpoints{}, CheckpointDir: t.TempDir(),
	})
	require.NoError(t, err)
	handler := s.Handler()
	return func(entry string) bool {
		method, path, _ := strings.Cut(entry, " ")
		methods := []string{method}
		if method == "ANY" {
			methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}
		}
		path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "cmdline")
		if strings.HasPrefix(path, "/logs/") {
			path = "/logs/" // the machine has other log files
		}
		return !slices.ContainsFunc(methods, func(method string) bool {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
			return answer.Code == http.StatusMethodNotAllowed || answer.Body.String() == "404 page not found\n"
		})
	}
}

// hasMetric returns a function that reports whether agent/metrics has a metric.
func hasMetric(t *testing.T, root string) func(string) bool {
	t.Helper()
	known := literals(parse(t, filepath.Join(root, "agent", "metrics")))
	return func(entry string) bool {
		name, _, _ := strings.Cut(entry, " ")
		for _, prefix := range []string{"node_", "pod_", "container_"} { // the exporter joins these parts of names
			if rest, ok := strings.CutPrefix(name, prefix); ok && known[prefix] && known[rest] {
				return true
			}
		}
		return known[name] || known[strings.TrimPrefix(name, "kubelet_")]
	}
}

// hasReason returns a function that reports whether one of our packages uses an event reason.
func hasReason(t *testing.T, root string) func(string) bool {
	t.Helper()
	known := map[string]bool{}
	for _, dir := range []string{"agent/agent.go", "agent/internal", "containergc", "eviction", "imagegc", "lifecycle", "oomwatch", "pleg", "podmanager", "prober", "status"} {
		maps.Copy(known, literals(parse(t, filepath.Join(root, dir))))
	}
	return func(entry string) bool { return known[entry] }
}

// hasFlag returns a function that reports whether minimal-agent or cluster-agent has a flag.
func hasFlag(t *testing.T, root string) func(string) bool {
	t.Helper()
	known := map[string]bool{}
	for _, dir := range []string{"examples/minimal-agent/settings", "agent/cluster/cmd/cluster-agent"} {
		for _, f := range parse(t, filepath.Join(root, filepath.FromSlash(dir))) {
			addFlags(known, f.file)
		}
	}
	require.NotEmpty(t, known)
	return func(entry string) bool { return known[strings.TrimPrefix(entry, "--")] }
}

// addFlags adds the names of the flags that a file registers: the first argument of
// named and of flags.Func, the second of flags.StringVar and the like.
func addFlags(known map[string]bool, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		name, arg := "", call.Args[0]
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			name = fun.Name
		case *ast.SelectorExpr:
			if x, ok := fun.X.(*ast.Ident); ok && x.Name == "flags" {
				name = fun.Sel.Name
			}
		}
		switch {
		case strings.HasSuffix(name, "Var"):
			arg = call.Args[1]
		case name != "named" && name != "Func":
			return true
		}
		if s, ok := stringOf(arg); ok {
			known[s] = true
		}
		return true
	})
}

// hasField returns a function that reports whether agent/kubeletconfig has a field.
func hasField() func(string) bool {
	known := map[string]bool{}
	for _, settings := range []reflect.Type{reflect.TypeFor[kubeletconfig.Settings](), reflect.TypeFor[kubeletconfig.ClusterSettings]()} {
		for f := range settings.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known[name] = true
		}
	}
	return func(entry string) bool { return known[entry] }
}
