package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// The API server is away for an hour. Meanwhile a container restarts, a Job's pod ends, and another
// client deletes a pod. Afterwards the API server gets the newest status of each pod in one request,
// the lease is renewed, and the node's status is reported.
func TestCluster_CatchesUpAfterAnHourWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("deleted", "demo/web:1"))
		b.put("pods", newPod("restarted", "demo/web:1"))
		ends := newPod("ends", "demo/web:1")
		ends.Spec.RestartPolicy = corev1.RestartPolicyNever
		b.put("pods", ends)
		b.start()
		after(time.Minute)
		require.Equal(b.t, []string{"deleted", "ends", "restarted"}, b.running())

		b.setAway(true)
		for range 3 {
			after(15 * time.Minute)
			require.NoError(b.t, b.runtime.Kill("default/restarted/main", 1))
		}
		require.NoError(b.t, b.runtime.Kill("default/ends/main", 0))
		after(15 * time.Minute)
		require.Equal(b.t, []string{"deleted", "restarted"}, b.running(), "no pod is stopped because the API server is away")
		require.Zero(b.t, b.pod("restarted").Status.ContainerStatuses[0].RestartCount)

		b.remove("pods", "default", "deleted")
		b.forget()
		b.setAway(false)
		after(2 * time.Minute)
		require.Equal(b.t, []string{"restarted"}, b.running())
		require.EqualValues(b.t, 3, b.pod("restarted").Status.ContainerStatuses[0].RestartCount)
		require.Equal(b.t, corev1.PodSucceeded, b.pod("ends").Status.Phase)
		require.Len(b.t, b.sent("patch pods/status default/restarted"), 1, "only the newest status")
		require.Len(b.t, b.sent("patch pods/status default/ends"), 1)
		require.WithinDuration(b.t, time.Now(), b.lease().Spec.RenewTime.Time, 11*time.Second)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		require.WithinDuration(b.t, time.Now(), b.condition(corev1.NodeReady).LastHeartbeatTime.Time, 2*time.Minute)
	})
}

// The data of the API server are restored from an older snapshot, so the versions of all objects go
// back. Afterwards the statuses of the pods and of the node are correct again.
func TestCluster_CatchesUpAfterAnOlderSnapshotWasRestored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		ends := newPod("ends", "demo/web:1")
		ends.Spec.RestartPolicy = corev1.RestartPolicyNever
		b.put("pods", ends)
		b.put("pods", newPod("deleted", "demo/web:1"))
		b.start()
		after(time.Minute)
		edit(b.api, "nodes", "", nodeName, func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionUnknown
			}
		})
		restore := b.snapshot()

		after(time.Minute)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		b.put("pods", newPod("created", "demo/web:1"))
		b.remove("pods", "default", "deleted")
		require.NoError(b.t, b.runtime.Kill("default/ends/main", 0))
		after(time.Minute)
		require.Equal(b.t, corev1.PodSucceeded, b.pod("ends").Status.Phase)
		require.Equal(b.t, []string{"created"}, b.running())

		b.setAway(true)
		restore()
		after(time.Minute)
		b.setAway(false)
		require.Equal(b.t, corev1.PodRunning, b.pod("ends").Status.Phase)
		require.Equal(b.t, corev1.ConditionUnknown, b.condition(corev1.NodeReady).Status)
		after(2 * time.Minute)
		require.Equal(b.t, corev1.PodSucceeded, b.pod("ends").Status.Phase)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		require.Equal(b.t, []string{"deleted"}, b.running(), "as the API server defines them now")
		require.Equal(b.t, corev1.PodRunning, b.pod("deleted").Status.Phase)
		require.WithinDuration(b.t, time.Now(), b.lease().Spec.RenewTime.Time, 11*time.Second)
	})
}
