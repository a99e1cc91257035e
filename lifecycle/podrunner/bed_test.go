package podrunner_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ podrunner.Sandboxes  = cri.RuntimeService(nil)
	_ podrunner.Containers = cri.RuntimeService(nil)
	_ podrunner.Images     = (*images.Manager)(nil)
	_ podrunner.Volumes    = (*volumes.Manager)(nil)
	_ podrunner.PodCgroups = cgroups.Pods(nil)
	_ podrunner.Resizer    = cri.RuntimeService(nil)
)

// bed is a Runner on a node in memory, with a clock that only tests advance.
type bed struct {
	t      *testing.T
	node   *fakecri.Node
	clock  *testingclock.FakeClock
	runner *podrunner.Runner
	logs   string
	root   string // RootDir, if the test sets it
	plans  []string
	held   *leases
	calls  int                               // number of calls that bed.did has returned
	probes map[string]podrunner.ProbeResults // by container ID; a container without an entry counts as started
}

func newBed(t *testing.T, change ...func(*podrunner.Config)) *bed {
	t.Helper()
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	b := newBedOn(t, c, change...)
	b.clock = c
	return b
}

// inBubble runs f with a bed in a synctest bubble. The clock of the bubble
// advances without the test.
func inBubble(t *testing.T, f func(b *bed), change ...func(*podrunner.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newBedOn(t, clock.RealClock{}, change...)) })
}

func newBedOn(t *testing.T, c clock.Clock, change ...func(*podrunner.Config)) *bed {
	t.Helper()
	b := &bed{t: t, logs: t.TempDir(), root: t.TempDir(), probes: map[string]podrunner.ProbeResults{}}
	var err error
	b.node, err = fakecri.New(fakecri.Config{
		Images: []fakecri.Image{{Name: "job"}, {Name: "app"}, {Name: "stubborn"}, {Name: "anew"}},
		Programs: map[string]fakecri.Program{
			"job":      {Runtime: time.Second},
			"crash":    {Runtime: time.Second, ExitCode: 3},
			"stubborn": {IgnoreTerm: true},
			"anew":     {Runtime: time.Second, ExitCode: 42, Crashes: 2},
		},
		WriteLogs: true,
		Registry:  []fakecri.Image{{Name: "crash"}},
		Clock:     c,
		Record:    true,
	})
	require.NoError(t, err)
	cfg := podrunner.Config{
		Sandboxes: b.node, Containers: b.node,
		Refresh: func(_ context.Context, uid types.UID) (*podcache.Status, error) { return b.look(uid), nil },
		Resizer: b.node,
		Probes: func(id string) podrunner.ProbeResults {
			if found, ok := b.probes[id]; ok {
				return found
			}
			return podrunner.ProbeResults{Started: true}
		},
		LogRoot: b.logs, Agent: "agent", Clock: c,
		Observer: podrunner.Observer{Planned: func(_ *corev1.Pod, a podrunner.Actions) { b.plans = append(b.plans, a.String()) }},
	}
	for _, f := range change {
		f(&cfg)
	}
	if cfg.Images == nil {
		cfg.Images = newImages(t, images.Config{Images: b.node, Clock: c, Events: cfg.Events, Leases: b.leases()})
	}
	cfg.Images = ifNotPresent{cfg.Images}
	b.runner, err = podrunner.New(cfg)
	require.NoError(t, err)
	return b
}

func newImages(t *testing.T, cfg images.Config) *images.Manager {
	t.Helper()
	m, err := images.New(cfg)
	require.NoError(t, err)
	return m
}

// leases counts the image leases that were not released yet.
type leases struct {
	mu   sync.Mutex
	held map[string]int
	all  int
}

func (b *bed) leases() images.Leases {
	b.held = &leases{held: map[string]int{}}
	return b.held
}

func (l *leases) Acquire(ref, owner string, _ time.Duration) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[ref+" "+owner]++
	l.all++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[ref+" "+owner]--; l.held[ref+" "+owner] == 0 {
			delete(l.held, ref+" "+owner)
		}
	})
}

func (l *leases) left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// ifNotPresent sets the pull policy IfNotPresent in requests without a pull
// policy, although their images have no tag.
type ifNotPresent struct{ podrunner.Images }

func (i ifNotPresent) Ensure(ctx context.Context, req images.Request) (images.Result, error) {
	req.PullPolicy = cmp.Or(req.PullPolicy, corev1.PullIfNotPresent)
	return i.Images.Ensure(ctx, req)
}

// look inspects the pod as pleg does, and returns its status.
func (b *bed) look(uid types.UID) *podcache.Status {
	b.t.Helper()
	ctx, s := b.t.Context(), &podcache.Status{UID: uid, SandboxOf: map[string]string{}}
	selector := map[string]string{crilabels.PodUID: string(uid)}
	boxes, err := b.node.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	require.NoError(b.t, err)
	for _, box := range boxes {
		answer, err := b.node.PodSandboxStatus(ctx, box.GetId(), false)
		require.NoError(b.t, err)
		s.Sandboxes = append(s.Sandboxes, answer.GetStatus())
		s.Name, s.Namespace = box.GetMetadata().GetName(), box.GetMetadata().GetNamespace()
	}
	containers, err := b.node.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	require.NoError(b.t, err)
	for _, c := range containers {
		answer, err := b.node.ContainerStatus(ctx, c.GetId(), false)
		require.NoError(b.t, err)
		s.Containers = append(s.Containers, answer.GetStatus())
		s.SandboxOf[c.GetId()] = c.GetPodSandboxId()
	}
	podcache.SortSandboxes(s.Sandboxes)
	podcache.SortContainers(s.Containers)
	return s
}

func (b *bed) sync(pod *corev1.Pod) error {
	b.t.Helper()
	terminal, err := b.runner.SyncPod(b.t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
	require.False(b.t, terminal)
	return err
}

// did returns the calls that changed the node since its last call.
func (b *bed) did() []string {
	var out []string
	all := b.node.Calls()
	for _, c := range all[b.calls:] {
		switch c.Method {
		case "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "ImageStatus":
		default:
			out = append(out, c.String())
		}
	}
	b.calls = len(all)
	return out
}

func podOf(init []string, images ...string) *corev1.Pod {
	pod := testPod()
	for _, image := range init {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init-" + image, Image: image})
	}
	for _, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: image, Image: image})
	}
	return pod
}
