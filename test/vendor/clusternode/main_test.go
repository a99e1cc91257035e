package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withDongles returns a pod of a tenant whose container requests n dongles.
func withDongles(name string, n int64) *corev1.Pod {
	requests := corev1.ResourceList{dongleResource: *resource.NewQuantity(n, resource.DecimalSI)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "tenant", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{
			Name: "main", Image: "demo/web:1", ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
		}}},
	}
}

// The node runs the pod of its tenant, with a dongle, rejects the pod of another namespace, and
// offers its dongles to the scheduler.
func TestNode(t *testing.T) {
	stranger := withDongles("stranger", 1)
	stranger.Namespace = "elsewhere"
	client := fake.NewClientset(withDongles("own", 1), stranger)
	runtime, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	pods, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer pods.Stop()

	left := make(chan error, 1)
	go func() {
		left <- join(ctx, client, "tenant", agent.Config{
			NodeName: "node1", Runtime: runtime, Host: fakehost.New(runtime), Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		})
	}()
	phases := map[string]corev1.PodPhase{}
	for len(phases) < 2 {
		select {
		case event := <-pods.ResultChan():
			pod, is := event.Object.(*corev1.Pod)
			require.True(t, is, "%v", event)
			if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodFailed {
				phases[pod.Name+" "+pod.Status.Reason] = pod.Status.Phase
			}
		case err := <-left:
			require.FailNow(t, "the node has ended", "%v; %v", err, phases)
		}
	}
	assert.Equal(t, map[string]corev1.PodPhase{"own ": corev1.PodRunning, "stranger NoTenant": corev1.PodFailed}, phases)

	node, err := client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	require.NoError(t, err)
	offered := node.Status.Allocatable[dongleResource]
	assert.Equal(t, int64(2), offered.Value())
	stop()
	require.NoError(t, <-left)
}

// The node ends when its context does, also if neither the runtime nor the API server answers.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	args := []string{"--kubeconfig", kubeconfig, "--node-name=node1", "--tenant=tenant", "--root", filepath.Join(dir, "root"), "--runtime", "unix://" + filepath.Join(dir, "runtime.sock")}
	require.ErrorContains(t, run(t.Context(), args), kubeconfig)
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, run(ctx, args))

	require.ErrorContains(t, run(t.Context(), append(args, "--runtime=")), "Endpoint")
	require.ErrorContains(t, run(t.Context(), append(args, "--tenants=one")), "tenants")
}

func TestDongles(t *testing.T) {
	d := newDongles("a", "b")
	admit := func(name string, n int64) lifecycle.PodAdmitResult {
		return d.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: withDongles(name, n)})
	}
	inject := func(name string, n int64) resources.Injection {
		pod := withDongles(name, n)
		injection, err := d.Container(t.Context(), resources.ContainerRequest{Pod: pod, Container: &pod.Spec.Containers[0]})
		require.NoError(t, err)
		return injection
	}
	require.True(t, admit("first", 1).Admit)
	require.True(t, admit("first", 1).Admit, "an agent admits the same pod again after a restart")
	assert.Equal(t, "a", inject("first", 1).Env["DONGLE"])
	assert.Equal(t, deviceOnNode, inject("first", 1).Devices[0].HostPath)

	assert.Equal(t, "the pod requests 2 dongles; it may have one, and 1 are free", admit("greedy", 2).Message)
	require.True(t, admit("second", 1).Admit)
	assert.Equal(t, "b", inject("second", 1).Env["DONGLE"])
	assert.Equal(t, "NoFreeDongle", admit("third", 1).Reason)

	d.Release("uid-first")
	d.Release("uid-unknown")
	require.True(t, admit("third", 1).Admit)
	assert.Equal(t, "a", inject("third", 1).Env["DONGLE"])

	assert.Empty(t, inject("without", 1), "the pod was not admitted")
	pod := withDongles("third", 1)
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	injection, err := d.Container(t.Context(), resources.ContainerRequest{Pod: pod, Container: &pod.Spec.Containers[0]})
	require.NoError(t, err)
	assert.Empty(t, injection, "the container requests none")
}

// A new agent knows the dongles of containers from their annotations.
func TestDongles_Restore(t *testing.T) {
	d := newDongles("a", "b")
	found := &podcache.Status{UID: "uid-found", Containers: []*runtimeapi.ContainerStatus{{}, {}}}
	found.Containers[0].Annotations = map[string]string{dongleAnnotation: "b"}
	require.NoError(t, d.Restore(t.Context(), []*podcache.Status{found}))
	assert.Equal(t, []string{"a"}, d.free)
	assert.Equal(t, map[types.UID]string{"uid-found": "b"}, d.own)
	assert.Equal(t, "dongles", d.Name())
}
