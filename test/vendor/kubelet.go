// Package vendor is a kubelet as a vendor would build it on package agent. It has its own pod
// source, volume type, CPU pinning, status sink, admission handler and metrics. Its tests
// disconnect each of these parts and check what fails.
package vendor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// Config is the configuration that the vendor's customers set.
type Config struct {
	Runtime  agent.Runtime
	Root     string // folder of the agent
	Orders   Orders
	Licences map[string]string // contents of licence volumes, by name
	CPUs     cpuset.CPUSet     // CPUs that pods may use
	Tenants  []string          // namespaces that may run here
	Registry prometheus.Registerer
	Agent    func(*agent.Config) // changes the agent's config in tests
}

// Kubelet is the vendor's kubelet.
type Kubelet struct {
	*agent.Agent
	Board *Board
}

// New returns a Kubelet. It starts nothing.
func New(c Config) (*Kubelet, error) {
	m, err := metrics.New(metrics.Config{Registerer: c.Registry})
	if err != nil {
		return nil, err
	}
	k := &Kubelet{Board: &Board{}}
	pins := &pinning{shared: c.CPUs, own: map[types.UID]cpuset.CPUSet{}, changed: func() { k.SyncAll() }}
	config := agent.Config{
		Name: "vendor", NodeName: "vendor-node", Runtime: c.Runtime, Root: c.Root,
		Sources:    []agent.Source{{Name: "orders", Run: c.Orders.run}},
		Volumes:    []volumes.Plugin{licences{c.Licences}},
		Allocators: []resources.Allocator{pins},
		Admission:  []lifecycle.NamedHandler{{Name: "tenants", Handler: tenants(c.Tenants)}},
		Statuses:   k.Board,
		Observers:  m.Observers(agent.Observers{}),
		StaticPods: agent.OrdinaryStaticPods, // an order is not critical
	}
	if c.Agent != nil {
		c.Agent(&config)
	}
	if k.Agent, err = agent.New(config); err != nil {
		return nil, err
	}
	m.AddAgent(k.Agent)
	return k, nil
}

// Orders is the vendor's pod source. Each value contains all pods that the vendor's control
// plane has ordered; the control plane sends a value whenever the pods have changed.
type Orders chan []*corev1.Pod

func (o Orders) run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-o:
			set(ctx, pods)
		}
	}
}

// Board is the vendor's status sink.
type Board struct{ phases sync.Map }

// Publish implements [status.Sink].
func (b *Board) Publish(_ context.Context, c status.Change) error {
	b.phases.Store(c.Pod.UID, c.New.Phase)
	return nil
}

// Forget implements [status.Sink].
func (b *Board) Forget(pod types.UID) { b.phases.Delete(pod) }

// Phase returns the phase of a pod, empty if it is unknown.
func (b *Board) Phase(pod types.UID) corev1.PodPhase {
	phase, _ := b.phases.Load(pod)
	p, _ := phase.(corev1.PodPhase)
	return p
}

// tenants admits the pods of some namespaces.
type tenants []string

// Admit implements [lifecycle.AdmitHandler].
func (t tenants) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if slices.Contains(t, attrs.Pod.Namespace) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: "NoTenant", Message: fmt.Sprintf("namespace %q is not a tenant of this node", attrs.Pod.Namespace)}
}

// licences is the vendor's volume type. A CSI volume of the driver licences.example.com
// contains the licence that the volume's attribute names.
type licences struct{ texts map[string]string }

const licenceDriver = "licences.example.com"

// Name implements [volumes.Plugin].
func (licences) Name() string { return licenceDriver }

// Supports implements [volumes.Plugin].
func (l licences) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.CSI == nil || v.CSI.Driver != licenceDriver {
		return false, nil
	}
	if name := v.CSI.VolumeAttributes["licence"]; l.texts[name] == "" {
		return true, fmt.Errorf("volumeAttributes[licence]: unknown licence %q", name)
	}
	return true, nil
}

// SetUp implements [volumes.Plugin].
func (l licences) SetUp(_ context.Context, r volumes.Request) (volumes.Mount, error) {
	text := l.texts[r.Spec.CSI.VolumeAttributes["licence"]]
	err := errors.Join(os.MkdirAll(r.Dir, 0o755), os.WriteFile(filepath.Join(r.Dir, "licence"), []byte(text), 0o644))
	return volumes.Mount{Path: r.Dir, ReadOnly: true}, err
}

// TearDown implements [volumes.Plugin]: the engine removes the folder.
func (licences) TearDown(context.Context, volumes.Ref) error { return nil }

// Usage implements [volumes.Plugin]: the engine measures the folder.
func (licences) Usage(context.Context, volumes.Ref) (*volumes.Usage, error) { return nil, nil }

// pinning assigns exclusive CPUs to each Guaranteed pod that requests whole CPUs. All other
// pods share the remaining CPUs. At least one CPU always remains. After a restart, pinning
// restores the assignments from the annotations of containers.
type pinning struct {
	changed func() // called when the shared CPUs have changed

	mu     sync.Mutex
	shared cpuset.CPUSet
	own    map[types.UID]cpuset.CPUSet
}

const pinAnnotation = "example.com/cpus"

// wanted returns how many exclusive CPUs a pod needs.
func wanted(pod *corev1.Pod) int {
	requests := podspec.Requests(pod)
	if cpu := requests.Cpu(); podspec.QOSClass(pod) == corev1.PodQOSGuaranteed && cpu.MilliValue()%1000 == 0 {
		return int(cpu.Value())
	}
	return 0
}

// pin assigns exclusive CPUs to a pod.
func (p *pinning) pin(pod types.UID, cpus cpuset.CPUSet) {
	p.own[pod], p.shared = cpus, p.shared.Difference(cpus)
}

// Name implements [resources.Ledger].
func (*pinning) Name() string { return "cpu-pinning" }

// Restore implements [resources.Ledger].
func (p *pinning) Restore(_ context.Context, found []*podcache.Status) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range found {
		for _, c := range pod.Containers {
			cpus, err := cpuset.Parse(c.GetAnnotations()[pinAnnotation])
			if err != nil {
				return fmt.Errorf("annotation %s of container %s of pod %s/%s: %w", pinAnnotation, c.GetId(), pod.Namespace, pod.Name, err)
			}
			if !cpus.IsEmpty() {
				p.pin(pod.UID, cpus)
			}
		}
	}
	return nil
}

// Admit implements [lifecycle.AdmitHandler].
func (p *pinning) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, own := wanted(attrs.Pod), p.own[attrs.Pod.UID].Size()
	switch {
	case own > 0 && own != want:
		return lifecycle.PodAdmitResult{Reason: "CPUsPinned", Message: fmt.Sprintf("the pod has %d CPUs of its own, which cannot become %d", own, want)}
	case own > 0:
		return lifecycle.PodAdmitResult{Admit: true}
	case want >= p.shared.Size(): // an empty set would mean all CPUs
		return lifecycle.PodAdmitResult{Reason: "NoFreeCPUs", Message: fmt.Sprintf("want %d of %d shared CPUs, one must stay", want, p.shared.Size())}
	case want > 0:
		p.pin(attrs.Pod.UID, cpuset.New(p.shared.List()[:want]...))
		p.changed()
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// Container implements [resources.Ledger].
func (p *pinning) Container(_ context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own, pinned := p.own[r.Pod.UID]; pinned {
		return resources.Injection{CPUs: own.String(), Annotations: map[string]string{pinAnnotation: own.String()}}, nil
	}
	return resources.Injection{CPUs: p.shared.String()}, nil
}

// Release implements [resources.Ledger].
func (p *pinning) Release(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own, pinned := p.own[pod]; pinned {
		p.shared = p.shared.Union(own)
		delete(p.own, pod)
		p.changed()
	}
}
