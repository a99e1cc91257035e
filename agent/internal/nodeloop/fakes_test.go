package nodeloop_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// machine has facts that tests can change.
type machine struct {
	mu    sync.Mutex
	facts host.Facts
	err   error
	asked int
}

func newMachine() *machine {
	return &machine{facts: host.Facts{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), "hugepages-2Mi": resource.MustParse("512Mi"),
		},
		SwapBytes:  1 << 30,
		Info:       corev1.NodeSystemInfo{MachineID: "id", OSImage: "Linux", OperatingSystem: "linux", Architecture: "amd64"},
		Addresses:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		ResolvConf: []byte("nameserver 192.0.2.53\nsearch example.com\n"),
		Hosts:      []byte("127.0.0.1 localhost\n"),
		CgroupV2:   true, AppArmor: true, SELinux: true,
	}}
}

func (m *machine) host() *host.Host {
	return &host.Host{Facts: func(ctx context.Context) (host.Facts, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked++
		return m.facts, errors.Join(m.err, ctx.Err())
	}}
}

func (m *machine) change(f func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// disk measures the disk of a runtime in memory.
type disk struct{ node *fakecri.Node }

func (d disk) Usage(context.Context) (imagegc.Usage, error) {
	u := d.node.DiskUsage()
	return imagegc.Usage{CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes}, nil
}

// figures measures the disk of a runtime in memory, and returns pod figures that the test
// sets.
type figures struct {
	node *fakecri.Node

	mu        sync.Mutex
	err       error
	pods      []eviction.PodStats
	summaries int
	looks     int    // measurements of the node and of pods
	slow      func() // simulates the duration of a summary
}

func (f *figures) change(do func(*figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

func (f *figures) Node(context.Context) (eviction.NodeStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	u := f.node.DiskUsage()
	return eviction.NodeStats{Layout: eviction.SingleFS, Observations: []eviction.Observation{
		{Signal: eviction.NodeFSAvailable, Available: int64(u.AvailableBytes), Capacity: int64(u.CapacityBytes)},
		{Signal: eviction.ImageFSAvailable, Available: int64(u.AvailableBytes), Capacity: int64(u.CapacityBytes)},
		{Signal: eviction.NodeFSInodesFree, Available: int64(u.InodesFree), Capacity: int64(u.Inodes)},
		{Signal: eviction.ImageFSInodesFree, Available: int64(u.InodesFree), Capacity: int64(u.Inodes)},
	}}, f.err
}

func (f *figures) Pods(context.Context, []*corev1.Pod) ([]eviction.PodStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return slices.Clone(f.pods), nil
}

func (f *figures) Summary(_ context.Context, pods []*corev1.Pod) (*statsapi.Summary, error) {
	f.mu.Lock()
	f.summaries++
	n := f.summaries
	slow := f.slow
	f.mu.Unlock()
	if slow != nil {
		slow()
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: fmt.Sprintf("summary %d of %d pods", n, len(pods))}}, nil
}

// used returns the figures of a pod that has written this number of bytes to its container's
// writable layer.
func used(pod string, bytes int64, at time.Time) eviction.PodStats {
	disk := eviction.DiskUsage{Bytes: eviction.Usage{Value: bytes, Time: at}, Inodes: eviction.Usage{Value: 1, Time: at}}
	return eviction.PodStats{UID: types.UID(pod), Containers: []eviction.ContainerStats{{Name: "app", Rootfs: disk}}}
}

// fakePods is a pod loop. It observes the pods in its runtime.
type fakePods struct {
	node *fakecri.Node

	mu        sync.Mutex
	notReady  error
	unhealthy error
	active    []*corev1.Pod
	defined   map[types.UID]*corev1.Pod
	evictions []evicted
	evict     func(context.Context, *corev1.Pod) error
	gone      map[types.UID]bool // pods that containerGC may remove
	hooks     []lifecycle.Hook
	awaited   func(context.Context, types.UID, time.Time) error
	hidden    bool // the pods in the runtime are not observed
}

type evicted struct {
	pod     *corev1.Pod
	grace   time.Duration
	evict   bool
	status  corev1.PodStatus
	decided time.Time
}

func newPods(node *fakecri.Node) *fakePods {
	return &fakePods{
		node: node, defined: map[types.UID]*corev1.Pod{}, gone: map[types.UID]bool{},
		evict:   func(context.Context, *corev1.Pod) error { return nil },
		awaited: func(context.Context, types.UID, time.Time) error { return nil },
	}
}

func (p *fakePods) change(f func(*fakePods)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

// add defines pods, which may run.
func (p *fakePods) add(names ...string) {
	for _, name := range names {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		}
		p.change(func(p *fakePods) {
			p.active = append(p.active, pod)
			p.defined[pod.UID] = pod
		})
	}
}

// evictedPods returns the names of the evicted pods in order.
func (p *fakePods) evictedPods() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.evictions {
		names = append(names, e.pod.Name)
	}
	return names
}

func (p *fakePods) functions() nodeloop.Pods {
	under := func(f func()) { p.mu.Lock(); defer p.mu.Unlock(); f() }
	return nodeloop.Pods{
		Active:   func() (pods []*corev1.Pod) { under(func() { pods = slices.Clone(p.active) }); return },
		Evict:    p.doEvict,
		Observed: p.observed,
		Await: func(ctx context.Context, pod types.UID, since time.Time) (*podcache.Status, error) {
			var await func(context.Context, types.UID, time.Time) error
			under(func() { await = p.awaited })
			return &podcache.Status{UID: pod}, await(ctx, pod, since)
		},
		Find:             func(uid types.UID) (pod *corev1.Pod, ok bool) { under(func() { pod, ok = p.defined[uid] }); return },
		CleanedUp:        func(uid types.UID) bool { return len(p.of(uid)) == 0 },
		ContentRemovable: func(uid types.UID) (ok bool) { under(func() { ok = p.gone[uid] }); return },
		RuntimeRemovable: func(uid types.UID) (ok bool) { under(func() { ok = p.gone[uid] }); return },
		RunHook:          func(_ context.Context, h lifecycle.Hook) { under(func() { p.hooks = append(p.hooks, h) }) },
		Ready:            func() (err error) { under(func() { err = p.notReady }); return },
		RuntimeHealth:    func() (err error) { under(func() { err = p.unhealthy }); return },
	}
}

func (p *fakePods) doEvict(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
	e := evicted{pod: pod, grace: *how.Grace, evict: how.Evict, decided: time.Now()}
	how.StatusFn(&e.status)
	p.mu.Lock()
	p.evictions = append(p.evictions, e)
	evict := p.evict
	p.mu.Unlock()
	if err := evict(ctx, pod); err != nil {
		return err
	}
	p.change(func(p *fakePods) {
		p.active = slices.DeleteFunc(p.active, func(a *corev1.Pod) bool { return a.UID == pod.UID })
	})
	return nil
}

// of returns the observed states of a pod.
func (p *fakePods) of(uid types.UID) []*podcache.Status {
	return slices.DeleteFunc(p.observed(), func(s *podcache.Status) bool { return s.UID != uid })
}

// observed inspects the runtime, as PLEG does.
func (p *fakePods) observed() (all []*podcache.Status) {
	p.mu.Lock()
	hidden := p.hidden
	p.mu.Unlock()
	if hidden {
		return nil
	}
	ctx := context.Background()
	byUID := map[types.UID]*podcache.Status{}
	sandboxes, _ := p.node.ListPodSandbox(ctx, nil)
	for _, s := range sandboxes {
		uid := crilabels.UID(s.GetLabels())
		if byUID[uid] == nil {
			byUID[uid] = &podcache.Status{UID: uid, Namespace: "ns", Name: string(uid), SandboxOf: map[string]string{}}
			all = append(all, byUID[uid])
		}
		if answer, err := p.node.PodSandboxStatus(ctx, s.GetId(), false); err == nil {
			byUID[uid].Sandboxes = append(byUID[uid].Sandboxes, answer.GetStatus())
		}
	}
	containers, _ := p.node.ListContainers(ctx, nil)
	for _, c := range containers {
		pod := byUID[crilabels.UID(c.GetLabels())]
		answer, err := p.node.ContainerStatus(ctx, c.GetId(), false)
		if pod == nil || err != nil {
			continue
		}
		pod.Containers = append(pod.Containers, answer.GetStatus())
		pod.SandboxOf[c.GetId()] = c.GetPodSandboxId()
	}
	return all
}

// events records the reasons of events.
type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.AnnotatedEventf(object, nil, kind, reason, format, args...)
}

func (e *events) AnnotatedEventf(object runtime.Object, _ map[string]string, _, reason, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	about := "?"
	switch o := object.(type) {
	case *corev1.Pod:
		about = "pod " + o.Name
	case *corev1.ObjectReference:
		about = o.Kind + " " + o.Name
	}
	e.reasons = append(e.reasons, about+": "+reason)
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.reasons)
}
