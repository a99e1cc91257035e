package vendor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/vendor"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
)

// newPod returns a pod of a tenant, with one container that runs until it is stopped.
func newPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "demo/web:1", ImagePullPolicy: corev1.PullIfNotPresent,
	}}}}
	p.Name, p.Namespace, p.UID = name, "tenant", types.UID("uid-"+name)
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, new(int64(5))
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// ofStranger moves a pod to a namespace that is not a tenant.
func ofStranger(p *corev1.Pod) { p.Namespace = "stranger" }

// withLicence gives a pod a licence volume.
func withLicence(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "licence", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: "licences.example.com", VolumeAttributes: map[string]string{"licence": name},
		}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "licence", MountPath: "/licence"}}
	}
}

// withCPUs makes a pod Guaranteed, with n CPUs.
func withCPUs(n int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(n, resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
}

// scene is the state of a run at one time, by pod name.
type scene struct {
	refusals map[string]string             // reasons and messages of refused pods
	statuses map[string]corev1.PodPhase    // phases in the vendor's status sink
	cpus     map[string]string             // CPUs of running containers, in the runtime
	licences map[string]string             // contents of the containers' licence volumes
	updates  map[string]int                // number of updates of running containers so far
	metrics  map[string]map[string]float64 // values by metric name and label values
}

// outcome is the recorded states of a finished run.
type outcome struct {
	begun    scene    // pods with shared CPUs run, and pods that must be refused are refused
	pinned   scene    // two pods have exclusive CPUs, a third pod is refused
	released scene    // one of the pods with exclusive CPUs is removed
	again    scene    // the agent was restarted
	late     scene    // another pod has an exclusive CPU
	ended    scene    // only one pod is left
	left     []string // folders of pods in the agent's root at the end
}

// play runs the vendor's kubelet, and then a second kubelet on the same node. disconnect may
// change the config of each kubelet.
func play(t *testing.T, disconnect func(*vendor.Config)) *outcome {
	t.Helper()
	o := &outcome{}
	synctest.Test(t, func(t *testing.T) {
		node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms(), Record: true})
		require.NoError(t, err)
		p := &player{node: node, root: t.TempDir(), disconnect: disconnect}

		shares, licensed := newPod("shares"), newPod("licensed", withLicence("gold"))
		bad := []*corev1.Pod{newPod("pirate", withLicence("pirated")), newPod("stranger", ofStranger)}
		first, second := newPod("first", withCPUs(2)), newPod("second", withCPUs(2))
		greedy, late := newPod("greedy", withCPUs(2)), newPod("late", withCPUs(1))
		static := append([]*corev1.Pod{shares, licensed}, bad...)

		stop := p.start(t)
		o.begun = p.order(t, static...)
		p.order(t, append(static, first)...)
		p.order(t, append(static, first, second)...)
		o.pinned = p.order(t, append(static, first, second, greedy)...)
		o.released = p.order(t, append(static, second)...)
		stop()

		stop = p.start(t)
		o.again = p.order(t, append(static, second)...)
		o.late = p.order(t, append(static, second, late)...)
		o.ended = p.order(t, shares)
		stop()
		o.left, err = filepath.Glob(filepath.Join(p.root, "pods", "*"))
		require.NoError(t, err)
	})
	return o
}

// player runs one kubelet after the other on a node.
type player struct {
	node       *fakecri.Node
	root       string
	disconnect func(*vendor.Config)

	kubelet  *vendor.Kubelet
	orders   vendor.Orders
	registry *prometheus.Registry
}

// start runs a kubelet until stop is called.
func (p *player) start(t *testing.T) (stop func()) {
	t.Helper()
	// The channel has a buffer, so that the test does not block if the source is
	// disconnected.
	p.orders, p.registry = make(vendor.Orders, 10), prometheus.NewRegistry()
	c := vendor.Config{
		Runtime: p.node, Root: p.root, Orders: p.orders, Registry: p.registry,
		Licences: map[string]string{"gold": "to run"}, CPUs: cpuset.New(0, 1, 2, 3, 4, 5), Tenants: []string{"tenant"},
	}
	if p.disconnect != nil {
		p.disconnect(&c)
	}
	change := c.Agent
	c.Agent = func(a *agent.Config) {
		a.Host = fakehost.New(p.node)
		a.SyncPeriod = 24 * time.Hour // so that only SyncAll updates running containers
		if change != nil {
			change(a)
		}
	}
	kubelet, err := vendor.New(c)
	require.NoError(t, err)
	p.kubelet = kubelet
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- kubelet.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// order replaces all pods, and returns the scene half a minute later.
func (p *player) order(t *testing.T, pods ...*corev1.Pod) scene {
	t.Helper()
	p.orders <- pods
	time.Sleep(30*time.Second + time.Millisecond)
	synctest.Wait()
	s := scene{
		refusals: map[string]string{}, statuses: map[string]corev1.PodPhase{},
		cpus: map[string]string{}, licences: map[string]string{}, updates: map[string]int{}, metrics: map[string]map[string]float64{},
	}
	for _, known := range p.kubelet.Pods() {
		if status := known.Spec.Status; known.State == agent.Refused {
			s.refusals[known.Spec.Name] = status.Reason + ": " + status.Message
		}
	}
	for _, name := range []string{"shares", "licensed", "pirate", "stranger", "first", "second", "greedy", "late"} {
		if phase := p.kubelet.Board.Phase(newPod(name).UID); phase != "" {
			s.statuses[name] = phase
		}
	}
	p.inspect(t, &s)
	for _, call := range p.node.Calls() {
		if call.Method == "UpdateContainerResources" {
			s.updates[strings.Split(call.Object, "/")[1]]++
		}
	}
	p.gather(t, &s)
	return s
}

// inspect adds the state of running containers in the runtime.
func (p *player) inspect(t *testing.T, s *scene) {
	t.Helper()
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	containers, err := p.node.ListContainers(t.Context(), running)
	require.NoError(t, err)
	for _, c := range containers {
		pod := c.GetLabels()["io.kubernetes.pod.name"]
		answer, err := p.node.ContainerStatus(t.Context(), c.GetId(), false)
		require.NoError(t, err)
		s.cpus[pod] = answer.GetStatus().GetResources().GetLinux().GetCpusetCpus()
		for _, m := range answer.GetStatus().GetMounts() {
			if m.GetContainerPath() == "/licence" {
				text, err := os.ReadFile(filepath.Join(m.GetHostPath(), "licence"))
				require.NoError(t, err)
				s.licences[pod] = string(text)
			}
		}
	}
}

// gather adds the counters and gauges of the vendor's registry.
func (p *player) gather(t *testing.T, s *scene) {
	t.Helper()
	families, err := p.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		s.metrics[f.GetName()] = map[string]float64{}
		for _, m := range f.GetMetric() {
			values := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			s.metrics[f.GetName()][strings.Join(values, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
}
