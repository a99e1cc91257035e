package nodeloop_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// bed is a node loop with an in-memory runtime and fakes of the machine and the pods.
type bed struct {
	*nodeloop.Loop
	node    *fakecri.Node
	machine *machine
	figures *figures
	pods    *fakePods
	events  *events
	log     *logBook
	cfg     nodeloop.Config
	changed atomic.Int64
}

// newBed creates a bed. The test changes its cfg and calls start.
func newBed(t *testing.T, images ...fakecri.Image) *bed {
	t.Helper()
	if images == nil {
		images = []fakecri.Image{{Name: "demo/app:1"}}
	}
	node, err := fakecri.New(fakecri.Config{Images: images, PullAny: true, Record: true})
	require.NoError(t, err)
	b := &bed{node: node, machine: newMachine(), figures: &figures{node: node}, pods: newPods(node), events: &events{}, log: &logBook{}}
	h := b.machine.host()
	h.Stats, h.ImageFS = b.figures, disk{node}
	b.cfg = nodeloop.Config{
		NodeName: "node1", Version: "v1.2.3", Runtime: node, Host: h, State: state.Memory(), Pods: b.pods.functions(),
		Events: b.events, Changed: func() { b.changed.Add(1) }, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	return b
}

// make creates the loop without running it.
func (b *bed) make(t *testing.T) {
	t.Helper()
	var err error
	b.Loop, err = nodeloop.New(b.cfg)
	require.NoError(t, err)
}

// start runs the loop until the end of the test or until stop is called, and returns when
// it is idle for the first time.
func (b *bed) start(t *testing.T) (stop func()) {
	t.Helper()
	b.make(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// wait advances the time and waits until all goroutines are idle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ready returns the node's condition Ready.
func (b *bed) ready() corev1.NodeCondition { return condition(b.Node(), corev1.NodeReady) }

// condition returns a condition of a node, or the zero value if the node does not have the
// condition.
func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// check returns the check of a part.
func (b *bed) check(t *testing.T, name string) nodeloop.Check {
	t.Helper()
	for _, c := range b.Checks() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check has the name %s", name)
	return nodeloop.Check{}
}

// calls returns the objects of all calls of a method.
func (b *bed) calls(method string) (objects []string) {
	for _, c := range b.node.Calls() {
		if c.Method == method {
			objects = append(objects, c.Object)
		}
	}
	return objects
}

// run starts a pod with one container with the image demo/app:1, whose program does not exit.
// The name of the pod is also its UID.
func (b *bed) run(t *testing.T, pod string) (sandbox, container string) {
	t.Helper()
	labels := map[string]string{
		crilabels.PodUID: pod, crilabels.PodName: pod, crilabels.PodNamespace: "ns", crilabels.ContainerName: "app",
	}
	conf := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: "ns", Uid: pod}, Labels: labels,
	}
	sandbox, err := b.node.RunPodSandbox(t.Context(), conf, "")
	require.NoError(t, err)
	container, err = b.node.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "demo/app:1"}, Labels: labels,
	}, conf)
	require.NoError(t, err)
	require.NoError(t, b.node.StartContainer(t.Context(), container))
	return sandbox, container
}

// images returns the tags of the images in the runtime.
func (b *bed) images(t *testing.T) (names []string) {
	t.Helper()
	images, err := b.node.ListImages(t.Context(), nil)
	require.NoError(t, err)
	for _, i := range images {
		names = append(names, i.GetRepoTags()...)
	}
	return names
}

// logBook records log lines.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// count returns how often a text occurs in the log.
func (l *logBook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
