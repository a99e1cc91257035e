package metrics_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
)

// source is an agent that runs these pods.
func source(node string, relisted time.Time, pods ...*corev1.Pod) metrics.Source {
	return metrics.Source{
		NodeName: node,
		Desired:  func() []*corev1.Pod { return pods },
		Mirrors:  func() int { return 1 },
		Known: func() map[types.UID]podworker.Known {
			all := map[types.UID]podworker.Known{}
			for _, p := range pods {
				all[p.UID] = podworker.Known{HasConfig: true, Static: true}
			}
			return all
		},
		Observed: func() (all []*podcache.Status) {
			for _, p := range pods {
				all = append(all, observed(p))
			}
			return all
		},
		RelistedAt: func() time.Time { return relisted },
	}
}

func TestAdd_ValuesOfSeveralAgentsAreAdded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add(source("node1", epoch.Add(time.Minute), newPod("a", "app"), newPod("b", "app", "side")))
	remove := b.Add(source("node2", epoch, newPod("c", "app")))
	b.Add(metrics.Source{NodeName: "node3"}) // its other functions are nil
	is := func(pods, containers, agents float64) {
		t.Helper()
		b.is(`kubelet_desired_pods{static="true"}`, pods)
		b.is(`kubelet_desired_pods{static=""}`, 0)
		b.is(`kubelet_active_pods{static="true"}`, pods)
		b.is(`kubelet_working_pods{config="desired",lifecycle="sync",static="true"}`, pods)
		b.is("kubelet_running_pods", pods)
		b.is(`kubelet_running_containers{container_state="running"}`, containers)
		b.is("kubelet_mirror_pods", agents)
	}
	is(3, 4, 2)
	b.is("kubelet_pleg_last_seen_seconds", float64(epoch.Unix()))
	require.Equal(t, []string{
		`kubelet_node_name{node="node1"} 1`, `kubelet_node_name{node="node2"} 1`, `kubelet_node_name{node="node3"} 1`,
	}, series(b.page(), "kubelet_node_name"))

	remove()
	remove() // the second call does nothing
	is(2, 3, 1)
	b.is("kubelet_pleg_last_seen_seconds", float64(epoch.Unix()+60))
	require.Len(t, series(b.page(), "kubelet_node_name"), 2)
}

func TestAdd_CountersOfSeveralAgentsAddUp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, other := b.PLEG(pleg.Observer{}), b.PLEG(pleg.Observer{})
	one.RelistEnd(pleg.Result{At: epoch}, nil)
	other.RelistEnd(pleg.Result{At: epoch.Add(time.Second)}, nil)
	one.RelistEnd(pleg.Result{At: epoch.Add(10 * time.Second)}, nil)
	b.is("kubelet_pleg_relist_duration_seconds_count", 3)
	b.is("kubelet_pleg_relist_interval_seconds_sum", 10)
}

func TestAdd_AgentThatHasNotRelisted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.none("kubelet_pleg_last_seen_seconds")
	b.Add(metrics.Source{RelistedAt: func() time.Time { return epoch }})
	b.is("kubelet_pleg_last_seen_seconds", float64(epoch.Unix()))
	b.Add(metrics.Source{RelistedAt: func() time.Time { return time.Time{} }})
	b.is("kubelet_pleg_last_seen_seconds", 0)
}

func TestAdd_RemoveDeletesSeriesOfPods(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a, c := newPod("a", "app"), newPod("c", "app")
	b.Add(source("node1", epoch, a))
	remove := b.Add(source("node2", epoch, c, newPod("quiet")))
	o, v := b.Prober(prober.Observer{}), b.Volumes(volumes.Observer{})
	const mounted = `volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"}`
	for _, p := range []*corev1.Pod{a, c} {
		v.Mounted(volumes.Operation{PodUID: p.UID, Plugin: "kubernetes.io/secret", Volume: "v"})
		o.RunFinished(run(p, "app", prober.Liveness, prober.Succeeded))
		b.Killed(oomwatch.Kill{PodUID: p.UID}, func(types.UID, string) (*corev1.Pod, string, bool) { return p, "app", true })
	}
	require.Len(t, series(b.probes(), "prober_probe_total"), 6)
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="c"}`, 1)
	b.is(mounted, 2)
	remove()
	require.Len(t, series(b.probes(), "prober_probe_total"), 3)
	b.is(mounted, 1)
	require.Empty(t, series(b.probes(), `prober_probe_total{container="app",namespace="ns",pod="c"`))
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="a"}`, 1)
	b.none(`container_oom_events_total{container="app",namespace="ns",pod="c"}`)

	b.Add(source("node2", epoch, c))
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="c"}`, 0)
}

func TestAdd_PodsOfOnlySomeSources(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	remove := b.Add(metrics.Source{
		Desired: func() []*corev1.Pod { return []*corev1.Pod{nil, newPod("desired", "app")} },
		Known:   func() map[types.UID]podworker.Known { return map[types.UID]podworker.Known{"uid-known": {}} },
		Observed: func() []*podcache.Status {
			return []*podcache.Status{{UID: "uid-observed", Containers: []*runtimeapi.ContainerStatus{nil}}}
		},
	})
	o := b.Prober(prober.Observer{})
	for _, name := range []string{"desired", "known", "observed", "elsewhere"} {
		o.RunFinished(run(newPod(name, "app"), "app", prober.Readiness, prober.Failed))
	}
	remove()
	left := series(b.probes(), "prober_probe_total")
	require.Len(t, left, 3)
	require.Contains(t, left[0], `pod="elsewhere"`)
}

func TestNew_OnOneRegistry(t *testing.T) {
	t.Parallel()
	_, err := metrics.New(metrics.Config{})
	require.EqualError(t, err, "metrics: invalid config: field Registerer is required")

	registry := prometheus.NewRegistry()
	m, err := metrics.New(metrics.Config{Registerer: registry})
	require.NoError(t, err)
	m.Prober(prober.Observer{}).RunFinished(run(newPod("a", "app"), "app", prober.Liveness, prober.Succeeded))
	require.NotEmpty(t, series(scrape(t, registry), "prober_probe_total"), "the registry must also have probe metrics")

	var taken prometheus.AlreadyRegisteredError
	_, err = metrics.New(metrics.Config{Registerer: registry})
	require.ErrorAs(t, err, &taken)
	_, err = metrics.New(metrics.Config{Registerer: registry, Prefix: "other_"})
	require.ErrorAs(t, err, &taken, "only some names have the prefix")
	require.Empty(t, series(scrape(t, registry), "other_"), "metrics registered before the error must be removed")
	require.NotEmpty(t, series(scrape(t, registry), "kubelet_"))
}

func TestNew_AgentsDistinguishedByALabel(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for i, node := range []string{"node1", "node2"} {
		m, err := metrics.New(metrics.Config{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"agent": node}, registry)})
		require.NoError(t, err)
		m.Add(source(node, epoch.Add(time.Duration(i)*time.Second), newPod("a"), newPod("b")))
		for range i + 1 {
			m.Rejected("Evicted")
		}
	}
	page := scrape(t, registry)
	require.Equal(t, []string{
		`kubelet_admission_rejections_total{agent="node1",reason="Evicted"} 1`,
		`kubelet_admission_rejections_total{agent="node2",reason="Evicted"} 2`,
	}, series(page, "kubelet_admission_rejections_total"))
	require.Equal(t, []string{`kubelet_running_pods{agent="node1"} 2`, `kubelet_running_pods{agent="node2"} 2`}, series(page, "kubelet_running_pods"))
	require.Len(t, series(page, "kubelet_pleg_last_seen_seconds"), 2)
}

// Functions of a source may call methods of Metrics during a scrape.
func TestAdd_SourcesMayCallBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := newPod("a", "app")
	find := func(types.UID, string) (*corev1.Pod, string, bool) { return pod, "app", true }
	s := source("node1", epoch, pod)
	s.Observed = func() []*podcache.Status {
		b.Killed(oomwatch.Kill{PodUID: pod.UID}, find)
		b.Prober(prober.Observer{}).RunFinished(run(pod, "app", prober.Liveness, prober.Failed))
		return []*podcache.Status{observed(pod)}
	}
	remove := b.Add(s)
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="a"}`, 1)
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="a"}`, 2)
	remove()
	require.Empty(t, series(b.probes(), "prober_probe_total"))
}

func TestAdd_DuringScrapes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var agents sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		agents.Go(func() {
			pod := newPod(fmt.Sprint("pod", i), "app")
			o, p := b.Prober(prober.Observer{}), b.PLEG(pleg.Observer{})
			for range 20 {
				remove := b.Add(source(fmt.Sprint("node", i), epoch, pod))
				o.RunFinished(run(pod, "app", prober.Liveness, prober.Succeeded))
				p.RelistEnd(pleg.Result{At: epoch}, nil)
				_, err := b.all.Gather()
				_, errProbe := b.probe.Gather()
				errs[i] = errors.Join(errs[i], err, errProbe)
				remove()
			}
		})
	}
	agents.Wait()
	require.NoError(t, errors.Join(errs...))
	b.is("kubelet_pleg_relist_duration_seconds_count", 160)
	b.none("kubelet_running_pods")
	b.none("kubelet_node_name")
	require.Empty(t, series(b.probes(), "prober_"))
}
