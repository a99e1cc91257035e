package cluster_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
)

func TestMain(m *testing.M) {
	// client-go limits how often it reports errors, and sleeps between two of them. The limit is
	// shared by all bubbles, whose clocks differ by years.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

const nodeName = "node1"

// bed is an agent on a runtime in memory, joined to an API server in memory.
type bed struct {
	*api
	t       *testing.T
	runtime *fakecri.Node
	root    string
	// Changes of the configurations of the next agent. Optional.
	cluster func(*cluster.Config)
	config  func(*agent.Config)
	// early is called with the event recorder before the agent runs. Optional.
	early func(agent.EventRecorder)

	agent  *agent.Agent
	joined agent.Config
	log    *syncBuffer
	stop   func() // stops the agent, once
}

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// inBubble calls f with a new bed, in a synctest bubble.
func inBubble(t *testing.T, f func(b *bed)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		runtime, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
		require.NoError(t, err)
		f(&bed{api: newAPI(t), t: t, runtime: runtime, root: root, log: &syncBuffer{}})
	})
}

// join returns a cluster, and the config of an agent that has joined it.
func (b *bed) join() (*cluster.Cluster, agent.Config) {
	b.t.Helper()
	logger := slog.New(slog.NewTextHandler(b.log, nil))
	cc := cluster.Config{Client: b.client(), NodeName: nodeName, Random: func() float64 { return 0.5 }, Logger: logger}
	if b.cluster != nil {
		b.cluster(&cc)
	}
	c, err := cluster.New(cc)
	require.NoError(b.t, err)
	ac := agent.Config{
		Name: "one", NodeName: nodeName, Runtime: b.runtime, Host: fakehost.New(b.runtime), Root: b.root,
		Random: func() float64 { return 0.5 }, Version: "v1.36.0", Logger: logger,
	}
	if b.config != nil {
		b.config(&ac)
	}
	require.NoError(b.t, c.Join(&ac))
	return c, ac
}

// start starts an agent, and waits until it is idle.
func (b *bed) start() {
	b.t.Helper()
	c, ac := b.join()
	a, err := agent.New(ac)
	require.NoError(b.t, err)
	b.agent, b.joined = a, ac
	if b.early != nil {
		b.early(ac.Events)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, a) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b.t, <-done)
	})
	b.t.Cleanup(b.stop)
	after(2 * time.Second)
}

// after waits for a time of the bubble, and then until all goroutines are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newPod returns a pod that is bound to the node.
func newPod(name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: nodeName, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(5)),
			ServiceAccountName: "default",
			Containers:         []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// pod returns a pod at the API server.
func (b *bed) pod(name string) *corev1.Pod {
	b.t.Helper()
	p, exists := read[corev1.Pod](b.api, "pods", "default", name)
	require.True(b.t, exists, "pod %s does not exist", name)
	return &p
}

// node returns the node at the API server.
func (b *bed) node() *corev1.Node {
	b.t.Helper()
	n, exists := read[corev1.Node](b.api, "nodes", "", nodeName)
	require.True(b.t, exists, "the node does not exist")
	return &n
}

// running returns the names of the pods that run in the runtime.
func (b *bed) running() []string {
	containers, err := b.runtime.ListContainers(b.t.Context(), nil)
	require.NoError(b.t, err)
	var names []string
	for _, c := range containers {
		if c.GetState().String() == "CONTAINER_RUNNING" {
			names = append(names, c.GetLabels()["io.kubernetes.pod.name"])
		}
	}
	slices.Sort(names)
	return names
}

// states returns a line for each pod of the agent.
func (b *bed) states() (lines []string) {
	for _, p := range b.agent.Pods() {
		lines = append(lines, fmt.Sprintf("%s %s %s", p.Spec.Name, p.State, cmp.Or(p.Spec.Status.Phase, "-")))
	}
	return lines
}

// spec returns the agent's definition of a pod.
func (b *bed) spec(uid types.UID) *corev1.Pod {
	b.t.Helper()
	p, known := b.agent.Pod(uid)
	require.True(b.t, known)
	return p.Spec
}

// condition returns a condition of the node at the API server.
func (b *bed) condition(kind corev1.NodeConditionType) corev1.NodeCondition {
	b.t.Helper()
	for _, c := range b.node().Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	require.Fail(b.t, "the node has no condition "+string(kind))
	return corev1.NodeCondition{}
}

// logged returns how many lines of the log contain a text.
func (b *bed) logged(text string) int { return strings.Count(b.log.String(), text) }

// recorded returns how many events with a reason are at the API server.
func (b *bed) recorded(reason string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.objects["events"] {
		if field(e, "reason") == reason {
			n++
		}
	}
	return n
}

// message returns the message of the last event with a reason.
func (b *bed) message(reason string) (text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.objects["events"] {
		if field(e, "reason") == reason {
			text = field(e, "message")
		}
	}
	return text
}
