package metrics

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/podcache"
)

// CadvisorSource has the functions that the handler of [Metrics.Cadvisor] calls for each request.
// All are required. They may be called concurrently. Their results are not modified.
type CadvisorSource struct {
	// Usage measures the machine, and the cgroups of the given containers and their pods. Set it
	// to the field Cgroups of a host.Host, or to the method Cgroups of a stats.Provider.
	Usage func(context.Context, []stats.Container) (stats.Usage, error)
	// Pods returns the agent's pods, as the method Pods of an agent does.
	Pods func() []agent.Pod
	// Node returns the node, as the method Node of an agent does. The IDs in the node's status are
	// the labels of the metrics of the machine.
	Node func() *corev1.Node
}

// Cadvisor returns the handler of the kubelet's page /metrics/cadvisor, with the usage and the
// limits of containers, pods, QoS classes and the machine. Names and labels are those of cAdvisor
// in a kubelet. All figures are read during the request; nothing is read between requests. The
// metrics are not registered with the registerers of [Config]. If Usage returns an error, the
// handler serves the figures that Usage returned, sets container_scrape_error and
// machine_scrape_error to 1, and logs the error.
func (m *Metrics) Cadvisor(s CadvisorSource) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		families := m.gatherCadvisor(r.Context(), s)
		gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
		promhttp.HandlerFor(gather, promhttp.HandlerOpts{ErrorLog: failures{m.cfg.Logger}}).ServeHTTP(w, r)
	})
}

// gatherCadvisor returns all metric families of the page. It creates the protobuf messages itself,
// so that the thousands of series can share the label pairs of their containers.
func (m *Metrics) gatherCadvisor(ctx context.Context, s CadvisorSource) []*dto.MetricFamily {
	known, containers := newCadvisorNames(s.Pods())
	usage, err := s.Usage(ctx, containers)
	failed := 0.0
	if err != nil {
		m.cfg.Logger.WarnContext(ctx, "could not measure some or all cgroups, their metrics are missing", "err", err)
		failed = 1
	}
	p := cadvisorPage{families: map[string]*dto.MetricFamily{}, series: cgroupSeries(), now: m.cfg.Clock.Now()}
	for i := range usage.Cgroups {
		g := &usage.Cgroups[i]
		if labels, ok := known.labels(g); ok {
			p.cgroup(g, labels, known.started(g))
		}
	}
	p.machine(usage.Machine, s.Node().Status.NodeInfo)
	p.gauge("container_scrape_error", "1 if some or all cgroups could not be read, otherwise 0.", nil, failed)
	p.gauge("machine_scrape_error", "1 if some or all cgroups could not be read, otherwise 0.", nil, failed)
	return p.sorted()
}

// cadvisorNames has the names of pods and containers whose cgroups are measured.
type cadvisorNames struct {
	pods       map[types.UID]*podcache.Status
	containers map[string]*runtimeapi.ContainerStatus
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
}

// newCadvisorNames returns the names of the pods in the runtime, of their ready sandboxes and of
// their running containers. It also returns these sandboxes and containers.
func newCadvisorNames(pods []agent.Pod) (n cadvisorNames, all []stats.Container) {
	n = cadvisorNames{
		map[types.UID]*podcache.Status{}, map[string]*runtimeapi.ContainerStatus{}, map[string]*runtimeapi.PodSandboxStatus{},
	}
	for _, pod := range pods {
		s := pod.Runtime
		if s == nil {
			continue
		}
		n.pods[s.UID] = s
		for _, sandbox := range s.Sandboxes {
			if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				n.sandboxes[sandbox.GetId()] = sandbox
				all = append(all, stats.Container{ID: sandbox.GetId(), Pod: s.UID, IsSandbox: true})
			}
		}
		for _, c := range s.Containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				n.containers[c.GetId()] = c
				all = append(all, stats.Container{ID: c.GetId(), Pod: s.UID})
			}
		}
	}
	return n, all
}

// pauseImage is the value of the label image for sandboxes. CRI does not report the image of a
// sandbox, but queries select containers and sandboxes by image!="".
const pauseImage = "pause"

// labels returns the labels of a cgroup's series, sorted by name. It returns false for a cgroup
// that was not requested.
func (n cadvisorNames) labels(g *stats.Cgroup) ([]*dto.LabelPair, bool) {
	var container, image, namespace, pod string
	if g.Pod != "" {
		s := n.pods[g.Pod]
		if s == nil {
			return nil, false
		}
		namespace, pod = s.Namespace, s.Name
	}
	if c := n.containers[g.ContainerID]; c != nil {
		container, image = podcache.ContainerName(c), cmp.Or(c.GetImage().GetImage(), c.GetImageRef())
	} else if n.sandboxes[g.ContainerID] != nil {
		image = pauseImage
	} else if g.ContainerID != "" {
		return nil, false
	}
	return []*dto.LabelPair{
		pair("container", container), pair("id", g.Path), pair("image", image),
		pair("name", g.ContainerID), pair("namespace", namespace), pair("pod", pod),
	}, true
}

// started returns the start time of a cgroup as a Unix time, or 0 if the time is unknown. The
// cgroup of a pod has the start time of the pod's newest sandbox.
func (n cadvisorNames) started(g *stats.Cgroup) int64 {
	s := n.pods[g.Pod]
	switch {
	case n.containers[g.ContainerID] != nil:
		return n.containers[g.ContainerID].GetStartedAt() / 1e9
	case n.sandboxes[g.ContainerID] != nil:
		return n.sandboxes[g.ContainerID].GetCreatedAt() / 1e9
	case s != nil && len(s.Sandboxes) > 0:
		return s.Sandboxes[0].GetCreatedAt() / 1e9
	default:
		return int64(g.Figures[stats.StartTime])
	}
}

func pair(name, value string) *dto.LabelPair {
	value = safe(value)
	return &dto.LabelPair{Name: &name, Value: &value}
}

// with returns the labels plus further pairs, sorted by name.
func with(labels []*dto.LabelPair, more ...*dto.LabelPair) []*dto.LabelPair {
	all := append(slices.Clone(labels), more...)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
