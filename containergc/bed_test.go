package containergc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// bed is a node with its pods' states and a manager.
type bed struct {
	*fakecri.Node
	t     *testing.T
	clock *testingclock.FakeClock
	cfg   containergc.Config
	boxes map[string]string // sandbox ID by pod
	confs map[string]*runtimeapi.PodSandboxConfig
	ready bool

	mu     sync.Mutex
	states pods
}

func newBed(t *testing.T, change ...func(*containergc.Config)) *bed {
	t.Helper()
	b := &bed{
		t: t, clock: testingclock.NewFakeClock(now()), states: pods{}, ready: true,
		boxes: map[string]string{}, confs: map[string]*runtimeapi.PodSandboxConfig{},
	}
	var err error
	b.Node, err = fakecri.New(fakecri.Config{Images: []fakecri.Image{{Name: "demo/app:1"}}, Record: true, Clock: b.clock})
	require.NoError(t, err)
	b.cfg = containergc.Config{
		Runtime: b.Node, Remover: b.Node, Pods: b, SourcesReady: func() bool { return b.ready },
		Clock: b.clock,
	}
	for _, f := range change {
		f(&b.cfg)
	}
	return b
}

func (b *bed) manager() *containergc.Manager {
	b.t.Helper()
	m, err := containergc.New(b.cfg)
	require.NoError(b.t, err)
	return m
}

func (b *bed) set(pod, state string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states[types.UID(pod)] = state
}

func (b *bed) ShouldPodContentBeRemoved(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states.ShouldPodContentBeRemoved(uid)
}

func (b *bed) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states.ShouldPodRuntimeBeRemoved(uid)
}

// box creates a sandbox; the pod's UID is its name.
func (b *bed) box(pod string) string {
	b.t.Helper()
	conf := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: "ns", Uid: pod},
		Labels:   map[string]string{crilabels.PodUID: pod, crilabels.PodName: pod, crilabels.PodNamespace: "ns"},
	}
	if old := b.confs[pod]; old != nil {
		conf.Metadata.Attempt = old.GetMetadata().GetAttempt() + 1
	}
	id, err := b.RunPodSandbox(b.t.Context(), conf, "")
	require.NoError(b.t, err)
	b.boxes[pod], b.confs[pod] = id, conf
	return id
}

// create creates a container.
func (b *bed) create(pod, name string, attempt uint32) string {
	b.t.Helper()
	if b.boxes[pod] == "" {
		b.box(pod)
	}
	id, err := b.CreateContainer(b.t.Context(), b.boxes[pod], &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: "demo/app:1"},
		Labels: map[string]string{crilabels.PodUID: pod, crilabels.PodName: pod, crilabels.PodNamespace: "ns"},
	}, b.confs[pod])
	require.NoError(b.t, err)
	return id
}

func (b *bed) start(pod, name string, attempt uint32) string {
	b.t.Helper()
	id := b.create(pod, name, attempt)
	require.NoError(b.t, b.StartContainer(b.t.Context(), id))
	return id
}

func (b *bed) dead(pod, name string, attempt uint32) string {
	b.t.Helper()
	id := b.start(pod, name, attempt)
	require.NoError(b.t, b.Kill(id, 1))
	return id
}

// left returns the objects in the runtime.
func (b *bed) left() (objects []string) {
	b.t.Helper()
	containers, err := b.ListContainers(b.t.Context(), nil)
	require.NoError(b.t, err)
	for _, c := range containers {
		objects = append(objects, fmt.Sprintf("%s/%s#%d", c.GetLabels()[crilabels.PodName], c.GetMetadata().GetName(), c.GetMetadata().GetAttempt()))
	}
	boxes, err := b.ListPodSandbox(b.t.Context(), nil)
	require.NoError(b.t, err)
	for _, s := range boxes {
		objects = append(objects, fmt.Sprintf("%s#%d", s.GetMetadata().GetName(), s.GetMetadata().GetAttempt()))
	}
	slices.Sort(objects)
	return objects
}

// calls returns the calls of the given methods, or of all methods, since the last call of calls.
func (b *bed) calls(methods ...string) (made []string) {
	for _, c := range b.Calls() {
		if slices.Contains(methods, c.Method) {
			made = append(made, c.String())
		}
	}
	return made
}

// logs creates a pod-logs directory with some files.
func logs(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		path := filepath.Join(root, f)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("line\n"), 0o600))
	}
	return root
}

// files returns the files below a directory, and its empty directories.
func files(t *testing.T, root string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(root)+"/"))
		}
		return err
	}))
	return all
}

// recorder records events.
type recorder []string

func (r *recorder) Eventf(_ runtime.Object, eventtype, reason, format string, args ...any) {
	*r = append(*r, eventtype+" "+reason+" "+fmt.Sprintf(format, args...))
}

const hour = time.Hour
