package vendor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

// field is a field of agent.Config that the vendor's kubelet does not need, used from outside
// the module.
type field struct {
	name string
	pod  func(*corev1.Pod)
	// set sets the field.
	set func(*world, *agent.Config)
	// check returns an error if the field has had no effect. fails is the error without the field.
	check func(*world) error
	fails string
}

func fields() []field {
	return []field{
		{"Cluster.Objects", withVolume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "config"},
		}}), func(_ *world, c *agent.Config) { c.Cluster.Objects = objects{} }, volumeHas("mode", "fast"), "configMap"},
		{"Cluster.Tokens", withVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}), func(_ *world, c *agent.Config) { c.Cluster.Tokens = token }, volumeHas("token", "t0ken of app"), "serviceAccountToken"},
		{"Cluster.Services", nothing, func(_ *world, c *agent.Config) { c.Cluster.Services = services }, hasServiceVariable, "DB_SERVICE_HOST"},
		{
			"Cluster.RuntimeHandler", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("fast") },
			func(_ *world, c *agent.Config) {
				c.Cluster.RuntimeHandler = func(string) (string, error) { return "runc", nil }
			}, runs, "fast",
		},
		{"Cluster.Node", selectsDisk, func(w *world, c *agent.Config) { c.Cluster.Node = w.labelled }, runs, "NodeAffinity"},
		{"Cluster.FreshNode", selectsDisk, func(w *world, c *agent.Config) { c.Cluster.FreshNode = w.labelled }, runs, "NodeAffinity"},
		{"NodeStatus", withFPGA, func(_ *world, c *agent.Config) { c.NodeStatus = fpgas }, hasDevice, "example.com/fpga"},
		{
			"Credentials", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "private/web:1" },
			func(_ *world, c *agent.Config) { c.Credentials = []images.CredentialProvider{vault{}} }, runs, "ImagePull",
		},
		{"Events", nothing, func(w *world, c *agent.Config) { c.Events = w }, hasEvent, "no event"},
		{"State", nothing, func(w *world, c *agent.Config) { c.State = w.store }, isStored, "is empty"},
		{"Host.Facts", nothing, func(_ *world, c *agent.Config) { c.Host = bigger(c.Host) }, hasProcessors, "8 CPUs"},
		{"Eviction.Rank", writes, func(_ *world, c *agent.Config) { c.Eviction.Rank = dearFirst }, dearIsEvicted, "pods [app dear]"},
		{"Runtime", nothing, func(w *world, c *agent.Config) { c.Runtime = trusted{c.Runtime, w} }, wasIntercepted, "no sandbox"},
	}
}

// TestConfig_Fields sets one field at a time, and checks the effect of the field, and the error
// without it.
func TestConfig_Fields(t *testing.T) {
	for _, f := range fields() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, f.check(live(t, f.pod, f.set)))
			require.ErrorContains(t, f.check(live(t, f.pod, func(*world, *agent.Config) {})), f.fails)
		})
	}
}

// world is the recorded state of an agent with two pods.
type world struct {
	app    *corev1.Pod // the pod that the field affects
	node   *corev1.Node
	volume map[string]string // the files of the volume that the app has mounted
	store  *state.MemoryStore
	agent  *agent.Agent

	mu        sync.Mutex
	created   map[string]*runtimeapi.ContainerConfig // by pod
	events    []string
	evicted   []string
	sandboxes int // number of sandboxes that trusted has checked
}

// live runs an agent with two pods for a minute, and then fills the disk until a pod that writes is
// evicted.
func live(t *testing.T, edit func(*corev1.Pod), set func(*world, *agent.Config)) *world {
	t.Helper()
	w := &world{created: map[string]*runtimeapi.ContainerConfig{}, store: state.Memory()}
	synctest.Test(t, func(t *testing.T) {
		node, err := fakecri.New(fakecri.Config{
			Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms(), Disk: fakecri.Disk{CapacityBytes: 100 << 30},
			Registry: []fakecri.Image{{Name: "private/web:1", SizeBytes: 1 << 20, Pull: fakecri.Pull{Username: "vendor", Password: "secret"}}},
		})
		require.NoError(t, err)
		app, dear := newPod("app", edit), newPod("dear", writes, func(p *corev1.Pod) { p.Spec.Priority = new(int32(100)) })
		thresholds, err := eviction.ParseThresholds(eviction.ThresholdSettings{EvictionHard: map[string]string{"nodefs.available": "10%"}})
		require.NoError(t, err)
		c := agent.Config{
			Name: "fields", NodeName: "node1", Runtime: recording{node, w}, Host: fakehost.New(node), Root: t.TempDir(),
			StaticPods: agent.OrdinaryStaticPods, Eviction: eviction.Policy{Thresholds: thresholds},
			Sources: []agent.Source{{Name: "two", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
				set(ctx, []*corev1.Pod{app, dear})
				<-ctx.Done()
				return nil
			}}},
			Allocators: []resources.Allocator{fpgaAllocator{}},
			Observers: agent.Observers{Pod: func(m agent.Move) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if m.To == agent.Ending {
					w.evicted = append(w.evicted, m.Pod.Name)
				}
			}},
		}
		set(w, &c)
		w.agent, err = agent.New(c)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.agent.Run(ctx) }()
		after := func(d time.Duration) {
			time.Sleep(d + time.Millisecond)
			synctest.Wait()
		}
		after(time.Minute)
		w.look(t)
		// At the next measurement, 300Mi of free space are missing. One pod has written more than
		// that.
		require.NoError(t, node.FillDisk(90_096<<20, 0))
		after(2 * time.Minute)
		stop()
		require.NoError(t, <-done)
	})
	return w
}

// look records the state of the app in the agent and in the runtime.
func (w *world) look(t *testing.T) {
	t.Helper()
	p, known := w.agent.Pod("uid-app")
	require.True(t, known)
	w.app, w.node = p.Spec, w.agent.Node()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.created["app"].GetMounts() {
		if m.GetContainerPath() == "/data" {
			w.volume = map[string]string{}
			for _, file := range []string{"mode", "token"} {
				text, err := os.ReadFile(filepath.Join(m.GetHostPath(), file))
				if !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, err)
					w.volume[file] = string(text)
				}
			}
		}
	}
}

func nothing(*corev1.Pod) {}

// writes makes a pod use the disk. A pod that does not use the disk is never evicted for it.
func writes(p *corev1.Pod) { p.Spec.Containers[0].Image = "demo/writer:1" }

// runs reports why the app does not run.
func runs(w *world) error {
	if w.app.Status.Phase == corev1.PodRunning && w.app.Status.ContainerStatuses[0].State.Running != nil {
		return nil
	}
	return fmt.Errorf("the app does not run: %s %s %v", w.app.Status.Reason, w.app.Status.Message, w.app.Status.ContainerStatuses)
}

func withVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "app"
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

func volumeHas(file, want string) func(*world) error {
	return func(w *world) error {
		if w.volume == nil {
			return fmt.Errorf("no volume is mounted: %w", runs(w))
		}
		if got := w.volume[file]; got != want {
			return fmt.Errorf("the file has %q, want %q", got, want)
		}
		return nil
	}
}

// objects is a cluster with one ConfigMap.
type objects struct{}

func (objects) ConfigMap(_ context.Context, _ *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	if name != "config" {
		return nil, fs.ErrNotExist
	}
	return &corev1.ConfigMap{Data: map[string]string{"mode": "fast"}}, nil
}

func (objects) Secret(context.Context, *corev1.Pod, string) (*corev1.Secret, error) {
	return nil, fs.ErrNotExist
}

func (objects) Release(types.UID) {}

func token(_ context.Context, pod *corev1.Pod, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	r = r.DeepCopy()
	r.Status.Token = "t0ken of " + pod.Spec.ServiceAccountName
	r.Status.ExpirationTimestamp.Time = time.Now().Add(time.Hour)
	return r, nil
}

func services(string) ([]*corev1.Service, error) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Port: 5432}}}}
	s.Name, s.Namespace = "db", "tenant"
	return []*corev1.Service{s}, nil
}

func hasServiceVariable(w *world) error {
	for _, e := range w.created["app"].GetEnvs() {
		if e.GetKey() == "DB_SERVICE_HOST" && e.GetValue() == "10.96.0.7" {
			return nil
		}
	}
	return errors.New("the container has no variable DB_SERVICE_HOST")
}

func selectsDisk(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }

// labelled returns the node as the API server returns it.
func (w *world) labelled(context.Context) (*corev1.Node, error) {
	n := w.agent.Node().DeepCopy()
	n.Labels["disk"] = "ssd"
	return n, nil
}

const fpga = corev1.ResourceName("example.com/fpga")

func withFPGA(p *corev1.Pod) {
	one := corev1.ResourceList{fpga: *resource.NewQuantity(1, resource.DecimalSI)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
}

func fpgas(n *corev1.Node) {
	n.Status.Capacity[fpga] = *resource.NewQuantity(1, resource.DecimalSI)
	n.Status.Allocatable[fpga] = n.Status.Capacity[fpga]
}

// fpgaAllocator assigns the only FPGA to a container. Admission counts the FPGAs.
type fpgaAllocator struct{}

func (fpgaAllocator) Name() string                                      { return "fpga" }
func (fpgaAllocator) Restore(context.Context, []*podcache.Status) error { return nil }
func (fpgaAllocator) Release(types.UID)                                 {}

func (fpgaAllocator) Admit(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{Admit: true}
}

func (fpgaAllocator) Container(_ context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	if _, asks := r.Container.Resources.Limits[fpga]; !asks {
		return resources.Injection{}, nil
	}
	return resources.Injection{Devices: []*runtimeapi.Device{{HostPath: "/dev/fpga0", ContainerPath: "/dev/fpga0", Permissions: "rw"}}}, nil
}

func hasDevice(w *world) error {
	for _, d := range w.created["app"].GetDevices() {
		if d.GetContainerPath() == "/dev/fpga0" {
			return nil
		}
	}
	return fmt.Errorf("the container has no device: %w", runs(w))
}

// vault has the credentials of private images.
type vault struct{}

func (vault) Name() string { return "vault" }

func (vault) Credentials(_ context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
	if r.Repository != "docker.io/private/web" {
		return nil, nil
	}
	return []*runtimeapi.AuthConfig{{Username: "vendor", Password: "secret"}}, nil
}

// AnnotatedEventf implements [agent.EventRecorder].
func (w *world) AnnotatedEventf(object runtime.Object, _ map[string]string, _, reason, _ string, _ ...any) {
	if ref, is := object.(*corev1.ObjectReference); is {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, ref.Name+" "+reason)
	}
}

func hasEvent(w *world) error {
	if !slices.Contains(w.events, "app Started") {
		return fmt.Errorf("no event that the app was started in %q", w.events)
	}
	return nil
}

func isStored(w *world) error {
	keys, err := w.store.Keys(context.Background(), "")
	if err == nil && len(keys) == 0 {
		err = errors.New("the store is empty")
	}
	return err
}

func bigger(h *host.Host) *host.Host {
	facts := h.Facts
	h.Facts = func(ctx context.Context) (host.Facts, error) {
		f, err := facts(ctx)
		f.Capacity[corev1.ResourceCPU] = resource.MustParse("64")
		return f, err
	}
	return h
}

func hasProcessors(w *world) error {
	if cpus := w.node.Status.Capacity.Cpu(); cpus.Value() != 64 {
		return fmt.Errorf("the node has %s CPUs", cpus)
	}
	return nil
}

func dearFirst(a, b *eviction.Candidate) int { return cmp.Compare(b.Priority, a.Priority) }

func dearIsEvicted(w *world) error {
	if len(w.evicted) == 0 || w.evicted[0] != "dear" {
		return fmt.Errorf("pods %s were evicted in this order", w.evicted)
	}
	return nil
}

// recording is a runtime that records how containers are created.
type recording struct {
	agent.Runtime

	world *world
}

func (r recording) CreateContainer(ctx context.Context, sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	r.world.mu.Lock()
	r.world.created[s.GetMetadata().GetName()] = c
	r.world.mu.Unlock()
	return r.Runtime.CreateContainer(ctx, sandbox, c, s)
}

// trusted is a runtime that checks each sandbox before its creation.
type trusted struct {
	agent.Runtime

	world *world
}

func (r trusted) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.world.mu.Lock()
	r.world.sandboxes++
	r.world.mu.Unlock()
	return r.Runtime.RunPodSandbox(ctx, c, handler)
}

func wasIntercepted(w *world) error {
	if w.sandboxes == 0 {
		return errors.New("no sandbox was seen")
	}
	return nil
}
