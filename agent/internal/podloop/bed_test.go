package podloop

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// bed is a Loop on a node in memory, in a synctest bubble.
type bed struct {
	*Loop
	t        *testing.T
	node     *fakecri.Node
	store    *state.MemoryStore
	root     string
	sources  map[string]*testSource
	places   atomic.Int64 // number of pods that admission accepts
	cancel   context.CancelFunc
	ended    chan error
	recorder *recorder
}

// testSource is a source whose pods the test sets.
type testSource struct {
	set  func([]*corev1.Pod)
	fail chan error
}

func (s *testSource) run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	s.set = func(pods []*corev1.Pod) { set(ctx, pods) }
	select {
	case err := <-s.fail:
		return err
	case <-ctx.Done():
		return nil
	}
}

// recorder records the reports of the loop.
type recorder struct {
	mu       sync.Mutex
	moves    []string
	events   []string
	statuses map[types.UID]status.Change
}

func (r *recorder) move(m Move) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("%s %s", m.Pod.Name, m.To)
	if m.Adopted {
		text += " (adopted)"
	}
	r.moves = append(r.moves, text)
}

func (r *recorder) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, reason+": "+fmt.Sprintf(format, args...))
}

func (r *recorder) Publish(_ context.Context, c status.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[c.Pod.UID] = c
	return nil
}

func (r *recorder) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.statuses, uid)
}

// takeMoves returns the state changes of a pod since the last call.
func (r *recorder) takeMoves(name string) (moves string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var mine, others []string
	for _, m := range r.moves {
		if rest, ok := strings.CutPrefix(m, name+" "); ok {
			mine = append(mine, rest)
		} else {
			others = append(others, m)
		}
	}
	r.moves = others
	return strings.Join(mine, ", ")
}

func (r *recorder) published(uid types.UID) (status.Change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.statuses[uid]
	return c, ok
}

func (r *recorder) hasEvent(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(e string) bool { return strings.Contains(e, part) })
}

func newNode(t *testing.T) *fakecri.Node {
	t.Helper()
	n, err := fakecri.New(fakecri.Config{
		PullAny: true,
		Programs: map[string]fakecri.Program{
			"job:1":      {Runtime: 5 * time.Second},
			"crash:1":    {Runtime: time.Second, ExitCode: 3},
			"slow:1":     {TermDelay: 20 * time.Second},
			"stubborn:1": {IgnoreTerm: true},
			"probed:1":   {Exec: map[string]fakecri.Exec{"true": {Health: true}}},
		},
		Record: true,
	})
	require.NoError(t, err)
	return n
}

// inBubble runs f with a running loop, whose source "file" has delivered an empty list of
// pods.
func inBubble(t *testing.T, f func(b *bed), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, newNode(t), state.Memory(), t.TempDir(), change...)
		b.start()
		b.set()
		f(b)
		b.stop()
	})
}

func newBed(t *testing.T, node *fakecri.Node, store *state.MemoryStore, root string, change ...func(*Config)) *bed {
	t.Helper()
	b := &bed{
		t: t, node: node, store: store, root: root, sources: map[string]*testSource{},
		recorder: &recorder{statuses: map[types.UID]status.Change{}},
	}
	b.places.Store(110)
	cfg := Config{
		Name: "agent", NodeName: "node1", Runtime: node, State: store,
		Root: root, PodLogs: filepath.Join(root, "logs"),
		Mounter: noMounts{},
		Sources: []Source{{Name: podspec.SourceFile}},
		Node: Node{
			Facts: func() podrunner.Facts {
				return podrunner.Facts{Name: "node1", IPs: []string{"192.0.2.1"}, Allocatable: b.allocatable()}
			},
			Get:         func(context.Context) (*corev1.Node, error) { return b.self(), nil },
			Images:      node,
			RuntimeName: func() string { return "fakecri" },
		},
		Sink:      b.recorder,
		Events:    b.recorder,
		Observers: Observers{Pod: b.recorder.move},
	}
	for _, f := range change {
		f(&cfg)
	}
	for i, s := range cfg.Sources {
		if s.Run == nil {
			b.sources[s.Name] = &testSource{fail: make(chan error, 1)}
			cfg.Sources[i].Run = b.sources[s.Name].run
		}
	}
	var err error
	b.Loop, err = New(cfg)
	require.NoError(t, err)
	return b
}

func (b *bed) allocatable() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourcePods: *resource.NewQuantity(b.places.Load(), resource.DecimalSI),
		corev1.ResourceCPU:  resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi"),
	}
}

func (b *bed) self() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{Allocatable: b.allocatable()}}
}

func (b *bed) start() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.Run(ctx) }()
	synctest.Wait()
}

func (b *bed) stop() {
	b.t.Helper()
	b.cancel()
	require.NoError(b.t, <-b.ended)
}

// set replaces the pods of the source "file", and give replaces the pods of any source.
func (b *bed) set(pods ...*corev1.Pod) { b.give(podspec.SourceFile, pods...) }

func (b *bed) give(source string, pods ...*corev1.Pod) {
	b.sources[source].set(pods)
	synctest.Wait()
}

// await waits until a pod is in a state, and returns it.
func (b *bed) await(name string, s State) Pod {
	b.t.Helper()
	return b.awaitPod(name, s.String(), func(p Pod) bool { return p.State == s })
}

// awaitRunning waits until a pod runs.
func (b *bed) awaitRunning(name string) Pod {
	b.t.Helper()
	return b.awaitPod(name, "Running", func(p Pod) bool { return p.State == Admitted && p.Spec.Status.Phase == corev1.PodRunning })
}

func (b *bed) awaitPod(name, what string, ok func(Pod) bool) Pod {
	b.t.Helper()
	var last []string
	for range 3000 {
		last = nil
		for _, p := range b.Pods() {
			if p.Spec.Name == name && ok(p) {
				return p
			}
			last = append(last, fmt.Sprintf("%s %s %s %s", p.Spec.Name, p.State, p.Spec.Status.Phase, p.Spec.Status.Message))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	require.Fail(b.t, "pod "+name+" never is "+what, "%v", last)
	return Pod{}
}

// awaitGone waits until the loop no longer has a pod.
func (b *bed) awaitGone(name string) {
	b.t.Helper()
	b.eventually("pod "+name+" is gone", func() bool {
		return !slices.ContainsFunc(b.Pods(), func(p Pod) bool { return p.Spec.Name == name })
	})
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	require.Fail(b.t, "condition never became true: "+what)
}

// images returns the images of running containers, by pod name.
func (b *bed) images(name string) (images []string) {
	b.t.Helper()
	list, err := b.node.ListContainers(b.t.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	require.NoError(b.t, err)
	for _, c := range list {
		if c.GetLabels()["io.kubernetes.pod.name"] == name {
			images = append(images, c.GetImage().GetUserSpecifiedImage())
		}
	}
	return images
}

// sandboxes returns how many sandboxes the runtime has.
func (b *bed) sandboxes() int {
	b.t.Helper()
	boxes, err := b.node.ListPodSandbox(b.t.Context(), nil)
	require.NoError(b.t, err)
	return len(boxes)
}

// ordinaryPods gives static pods the priority of ordinary pods, so that no pod preempts another
// pod.
func ordinaryPods(c *Config) { c.OrdinaryStaticPods = true }

func noHousekeeping(c *Config) { c.manual = true }

func twoSources(names ...string) func(*Config) {
	return func(c *Config) {
		c.Sources = nil
		for _, n := range names {
			c.Sources = append(c.Sources, Source{Name: n})
		}
	}
}

// newPod returns a pod whose UID is its name with the prefix "uid-".
func newPod(name, image string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "main", Image: image}},
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(30)),
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func withUID(uid types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = uid } }

func deletedIn(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &seconds
	}
}

func restart(policy corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

// unsupported sets an unsupported field of a pod.
func unsupported(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: "disk", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}},
	})
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}
}
