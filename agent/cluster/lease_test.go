package cluster_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lease returns the lease of the node.
func (b *bed) lease() coordinationv1.Lease {
	b.t.Helper()
	l, exists := read[coordinationv1.Lease](b.api, "leases", corev1.NamespaceNodeLease, nodeName)
	require.True(b.t, exists, "the lease does not exist")
	return l
}

func TestLease_IsCreatedAndRenewedEveryTenSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		l := b.lease()
		require.Equal(b.t, nodeName, *l.Spec.HolderIdentity)
		require.Equal(b.t, int32(40), *l.Spec.LeaseDurationSeconds)
		require.Equal(b.t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: b.node().UID}}, l.OwnerReferences)
		b.forget()
		after(time.Hour)
		require.InDelta(b.t, 3600/10.2, len(b.sent("update leases")), 2)
		require.Empty(b.t, b.sent("get leases"))
		require.WithinDuration(b.t, time.Now(), b.lease().Spec.RenewTime.Time, 11*time.Second)
	})
}

func TestLease_OfAnEarlierAgentIsTakenOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("leases", &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName, Namespace: corev1.NamespaceNodeLease, Labels: map[string]string{"kept": "yes"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("someone"), LeaseDurationSeconds: new(int32(1))},
		})
		b.start()
		l := b.lease()
		require.Equal(b.t, nodeName, *l.Spec.HolderIdentity)
		require.Equal(b.t, int32(40), *l.Spec.LeaseDurationSeconds)
		require.Equal(b.t, "yes", l.Labels["kept"])
		require.Empty(b.t, b.sent("create leases"))
	})
}

// Another client changes the lease, and later deletes it.
func TestLease_ConflictAndDeletion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		b.forget()
		edit(b.api, "leases", corev1.NamespaceNodeLease, nodeName, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"a": "b"} })
		after(11 * time.Second)
		require.Equal(b.t, []string{"get leases kube-node-lease/node1"}, b.sent("get leases"))
		require.Len(b.t, b.sent("update leases"), 2)
		require.Equal(b.t, "b", b.lease().Labels["a"])

		b.remove("leases", corev1.NamespaceNodeLease, nodeName)
		after(11 * time.Second)
		require.Len(b.t, b.sent("create leases"), 1)
		require.Equal(b.t, nodeName, *b.lease().Spec.HolderIdentity)
	})
}

// If renewals fail, the agent makes five attempts without a pause, and then waits for one period.
func TestLease_FailedRenewalsAreRetried(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "leases" {
				return errors.New("etcd is down")
			}
			return nil
		})
		b.forget()
		after(35 * time.Second)
		require.Len(b.t, b.sent("update leases"), 15)
		require.Equal(b.t, 15, b.logged("could not renew the lease of the node, will retry"))
		b.failing(nil)
		after(10 * time.Second)
		require.WithinDuration(b.t, time.Now(), b.lease().Spec.RenewTime.Time, 11*time.Second)
	})
}

// A request that hangs is given up after ten seconds.
func TestLease_HangingRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		b.failing(func(r *http.Request, q request) error {
			if q.resource == "leases" {
				<-r.Context().Done()
				return r.Context().Err()
			}
			return nil
		})
		after(25 * time.Second)
		b.failing(nil)
		after(10 * time.Second)
		require.WithinDuration(b.t, time.Now(), b.lease().Spec.RenewTime.Time, 11*time.Second)
		require.Contains(b.t, b.log.String(), "context deadline exceeded")
	})
}
