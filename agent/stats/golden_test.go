package stats_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// The pods of the trees in testdata.
const (
	burstable  = types.UID("11111111-2222-3333-4444-555555555555")
	guaranteed = types.UID("0123456789abcdef0123456789abcdef") // static
	bestEffort = types.UID("99999999-8888-7777-6666-555555555555")
)

func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func pod(name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "ns", UID: uid, CreationTimestamp: metav1.NewTime(epoch().Add(-time.Hour)),
	}}
}

// treePods returns the pods of the trees in testdata, and a pod that has not started.
func treePods() []*corev1.Pod {
	return []*corev1.Pod{
		pod("burstable", burstable), nil, pod("static", guaranteed),
		pod("besteffort", bestEffort), pod("pending", "aaaaaaaa-0000-0000-0000-000000000000"),
	}
}

// tree returns a configuration for one of the trees in testdata, without filesystems.
func tree(tb testing.TB, root string) stats.Config {
	tb.Helper()
	at, err := filepath.Abs("testdata")
	require.NoError(tb, err)
	return stats.Config{
		NodeName:   "node",
		ProcRoot:   filepath.Join(at, "proc"),
		CgroupRoot: filepath.Join(at, root),
		NodePath:   "/nonexistent/kubelet", LogPath: "/nonexistent/logs",
		Clock: testingclock.NewFakeClock(epoch()),
	}
}

func newProvider(tb testing.TB, cfg stats.Config) *stats.Provider {
	tb.Helper()
	p, err := stats.New(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, p.Close()) })
	return p
}

// TestGolden measures the same node in trees of both cgroup versions and both drivers. The
// figures must be the same.
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		var root, estimator string
		d.ScanArgs(t, "root", &root)
		cfg := tree(t, root)
		if d.HasArg("estimator") {
			d.ScanArgs(t, "estimator", &estimator)
			cfg.Estimator = stats.Estimator(estimator)
		}
		if d.HasArg("pods-cgroup") {
			d.ScanArgs(t, "pods-cgroup", &cfg.PodsCgroup)
		}
		p := newProvider(t, cfg)
		switch d.Cmd {
		case "node":
			node, err := p.Node(t.Context())
			return printNode(node) + printErr(t, err)
		case "pods":
			pods, err := p.Pods(t.Context(), treePods())
			require.NoError(t, err)
			return printPods(pods)
		case "summary":
			summary, err := p.Summary(t.Context(), treePods())
			out, errJSON := json.MarshalIndent(summary, "", " ")
			require.NoError(t, errJSON)
			return string(out) + "\n" + printErr(t, err)
		default:
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		}
	})
}

func printNode(node eviction.NodeStats) string {
	var b strings.Builder
	for _, o := range node.Observations {
		fmt.Fprintf(&b, "%-28s %12d of %12d at %s\n", o.Signal, o.Available, o.Capacity, o.Time.Format(time.TimeOnly))
	}
	return b.String()
}

func printErr(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	here, errDir := os.Getwd()
	require.NoError(t, errDir)
	text := strings.ReplaceAll(err.Error(), here+"/", "")
	return "error: " + strings.ReplaceAll(text, "\n", "\nerror: ") + "\n"
}

func printUsage(u eviction.Usage) string {
	if !u.Known() {
		return "unknown"
	}
	return fmt.Sprint(u.Value)
}

func printPods(pods []eviction.PodStats) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "%s memory=%s processes=%s\n", p.UID, printUsage(p.Memory), printUsage(p.Processes))
		for _, c := range p.Containers {
			fmt.Fprintf(&b, "  container %s memory=%s rootfs=%s/%s logs=%s/%s\n", c.Name, printUsage(c.Memory),
				printUsage(c.Rootfs.Bytes), printUsage(c.Rootfs.Inodes), printUsage(c.Logs.Bytes), printUsage(c.Logs.Inodes))
		}
		for _, v := range p.Volumes {
			fmt.Fprintf(&b, "  volume %s %s/%s\n", v.Name, printUsage(v.Bytes), printUsage(v.Inodes))
		}
		if p.Other.Bytes.Known() {
			fmt.Fprintf(&b, "  other %s/%s\n", printUsage(p.Other.Bytes), printUsage(p.Other.Inodes))
		}
	}
	return b.String()
}
