package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/state"
)

func TestState_PodsAreManagedAfterARestartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		store := state.Memory()
		b.cluster = func(c *cluster.Config) { c.State = store }
		b.put("pods", newPod("gone", "demo/web:1"))
		pod := newPod("web", "demo/web:1")
		pod.Spec.RuntimeClassName = new("sandboxed")
		b.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "runc"})
		b.put("services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7"}})
		b.put("services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "db"}})
		b.put("pods", pod)
		b.start()
		require.Equal(b.t, []string{"gone", "web"}, b.running())
		b.stop()

		b.setAway(true)
		b.start()
		after(5 * time.Second)
		require.Empty(b.t, b.states(), "a list may still arrive")
		after(10 * time.Second)
		require.Equal(b.t, []string{"gone admitted Running", "web admitted Running"}, b.states())
		require.Equal(b.t, 1, b.logged("managing the stored pods"))
		require.NoError(b.t, b.runtime.Kill("default/web/main", 1))
		after(time.Minute)
		require.Equal(b.t, []string{"gone", "web"}, b.running(), "the container has restarted")
		services, err := b.joined.Cluster.Services("default")
		require.NoError(b.t, err)
		require.Len(b.t, services, 1)
		require.Equal(b.t, "10.96.0.7", services[0].Spec.ClusterIP)
		services, err = b.joined.Cluster.Services("other")
		require.NoError(b.t, err)
		require.Empty(b.t, services, "no pod of the node is in this namespace")
		handler, err := b.joined.Cluster.RuntimeHandler("sandboxed")
		require.NoError(b.t, err)
		require.Equal(b.t, "runc", handler)

		// The API server is back. One of the pods was deleted meanwhile.
		b.remove("pods", "default", "gone")
		b.setAway(false)
		after(2 * time.Minute)
		require.Equal(b.t, []string{"web"}, b.running())
		require.EqualValues(b.t, 1, b.pod("web").Status.ContainerStatuses[0].RestartCount, "the status has caught up")
		services, err = b.joined.Cluster.Services("other")
		require.NoError(b.t, err)
		require.Len(b.t, services, 1, "the list of the API server")
	})
}

func TestState_IsNotUsedWhileTheAPIServerAnswers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		store := state.Memory()
		b.cluster = func(c *cluster.Config) { c.State = store }
		b.put("pods", newPod("gone", "demo/web:1"))
		b.start()
		b.stop()
		b.remove("pods", "default", "gone")
		b.start()
		after(time.Minute)
		require.Empty(b.t, b.running())
		require.Zero(b.t, b.logged("managing the stored pods"))
	})
}

func TestState_ADamagedValueIsNotUsed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		store := state.Memory()
		require.NoError(b.t, store.Put(b.t.Context(), "cluster-pods.json", []byte("{")))
		b.cluster = func(c *cluster.Config) { c.State = store }
		b.put("pods", newPod("web", "demo/web:1"))
		b.setAway(true)
		b.start()
		after(15 * time.Second)
		require.Equal(b.t, 1, b.logged("could not load the stored pods"))
		b.setAway(false)
		after(time.Minute)
		require.Equal(b.t, corev1.PodRunning, b.pod("web").Status.Phase)
	})
}

// A pod that has failed at the API server does not run if the agent starts without the API server,
// even if the node has room for the pod now.
func TestState_FailedPodIsNotRunAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		store := state.Memory()
		b.cluster = func(c *cluster.Config) { c.State = store }
		b.config = func(c *agent.Config) { c.MaxPods = 1 }
		first := newPod("first", "demo/web:1")
		first.Spec.RestartPolicy = corev1.RestartPolicyNever
		b.put("pods", first)
		b.start()
		b.put("pods", newPod("second", "demo/web:1"))
		after(time.Minute)
		require.Equal(b.t, corev1.PodFailed, b.pod("second").Status.Phase, "the node has room for one pod")
		require.NoError(b.t, b.runtime.Kill("default/first/main", 0))
		after(time.Minute)
		require.Equal(b.t, corev1.PodSucceeded, b.pod("first").Status.Phase)
		b.stop()

		b.setAway(true)
		b.start()
		after(time.Minute)
		require.Empty(b.t, b.running())
	})
}
