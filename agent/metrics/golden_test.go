package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

// newFullBed returns a bed in which each event has occurred once, so that every metric has a
// series.
func newFullBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	pod := newPod("web", "app")
	workers := b.Workers(podworker.Observer{})
	workers.SyncEnded(podworker.SyncInfo{Pod: pod, First: true})
	workers.Restarted(pod)
	runner := b.Runner(podrunner.Observer{})
	runner.ContainerStarted(podrunner.ContainerStart{Code: podrunner.CreateContainerError})
	b.Images(images.Observer{}).Pulled(images.PullInfo{SizeBytes: 1})
	b.Statuses(status.Observer{}).ContainerTerminated(status.ContainerTermination{Type: status.ContainerTypeRegular, Reason: "Error"})
	b.Rejected("OutOfpods")
	b.PLEG(pleg.Observer{}).RelistEnd(pleg.Result{}, nil)
	b.Eviction(eviction.Observer{}).Evaluated(eviction.Decision{
		Signal: eviction.MemoryAvailable, Threshold: &eviction.Report{}, Victims: make([]eviction.Victim, 1),
	}, nil)
	b.startPod(pod, time.Second)
	b.Request(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil), "pods", "readwrite")()
	b.Checked("healthz", "ping", nil)
	b.Images(images.Observer{}).Verified(images.PolicyAllowed)
	o := b.Observers(agent.Observers{})
	o.Cgroups("create", 0)
	o.Preemption.Preempted(lifecycle.Preemption{Resource: corev1.ResourceMemory})
	o.Volumes.Mounted(volumes.Operation{PodUID: pod.UID, Volume: "v", Plugin: "kubernetes.io/secret", Total: time.Second})
	o.Runner.Resized(pod, 0, nil)
	bigger := newPod("web", "app")
	bigger.Spec.Containers[0].Resources.Limits = asks("1", "")
	o.Edited(pod, bigger)
	b.ContainerGC(containergc.Observer{}).Removed(containergc.Object{Kind: containergc.KindContainer}, 0, nil)
	b.Prober(prober.Observer{}).RunFinished(run(pod, "app", prober.Liveness, prober.Succeeded))
	err := b.CallObserver()(t.Context(), "/runtime.v1.RuntimeService/RunPodSandbox", &runtimeapi.RunPodSandboxRequest{}, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return errNo })
	require.ErrorIs(t, err, errNo)
	b.Add(metrics.Source{
		NodeName:      "node1",
		LogBytes:      func() []agent.LogUsage { return []agent.LogUsage{{Pod: pod, Container: "app", Bytes: 1}} },
		CgroupVersion: func() int { return 2 },
		RelistedAt:    func() time.Time { return epoch },
		Desired:       func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Mirrors:       func() int { return 0 },
		Known:         func() map[types.UID]podworker.Known { return nil },
		Observed:      func() []*podcache.Status { return []*podcache.Status{observed(pod)} },
	})
	b.summary = func(context.Context) (*statsapi.Summary, error) {
		return &statsapi.Summary{
			Node: statsapi.NodeStats{CPU: cpu(9), Memory: memory(900), Swap: swap(90, 10)},
			Pods: []statsapi.PodStats{{
				PodRef: statsapi.PodReference{Name: "web", Namespace: "ns"}, CPU: cpu(5), Memory: memory(500), Swap: swap(50, 0),
				Containers: []statsapi.ContainerStats{{
					Name: "app", StartTime: metav1.NewTime(epoch.Add(time.Second)), CPU: cpu(4), Memory: memory(400), Swap: swap(40, 60),
				}},
			}},
		}, nil
	}
	return b
}

// TestExposition checks every name, type, help text, label and bucket. Changing one may break a
// user's dashboard.
func TestExposition(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/exposition", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		b := newFullBed(t)
		pages := map[string]func() string{"metrics": b.page, "probes": b.probes, "slis": b.slis, "resource": b.resource, "cadvisor": b.cadvisor}
		require.Contains(t, pages, d.Cmd)
		return described(pages[d.Cmd]())
	})
}

// described returns a page without values. For a histogram, the result has the bounds of the
// buckets of each series in one line.
func described(page string) string {
	var out strings.Builder
	bounds, last := []string{}, ""
	flush := func() {
		if len(bounds) > 0 {
			fmt.Fprintf(&out, "%s le=%s\n", last, strings.Join(bounds, " "))
			bounds = nil
		}
	}
	bucket := regexp.MustCompile(`^(.*)_bucket\{(.*?),?le="(.*)"\} `)
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := bucket.FindStringSubmatch(line); m != nil {
			last, bounds = m[1]+"{"+m[2]+"}", append(bounds, m[3])
			continue
		}
		flush()
		switch {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case regexp.MustCompile(`^\w+_(sum|count)(\{| )`).MatchString(line) && last != "" && strings.HasPrefix(line, strings.SplitN(last, "{", 2)[0]):
		default:
			fmt.Fprintln(&out, regexp.MustCompile(` [^ ]+( \d+)?$`).ReplaceAllStringFunc(line, func(v string) string {
				if strings.Count(v, " ") == 2 {
					return " (with a time)"
				}
				return ""
			}))
		}
	}
	flush()
	return out.String()
}
