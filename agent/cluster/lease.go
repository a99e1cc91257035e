package cluster

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// renewJitter is the maximum random delay of a renewal, as a fraction of the time between two
// renewals.
const renewJitter = 0.04

// lease renews the lease of the node. If the lease and the status of a node have not changed for a
// while, the node lifecycle controller of the cluster marks the node as unreachable.
type lease struct {
	cfg Config
	// owner returns the node, which becomes the owner of the lease.
	owner func(context.Context) (*corev1.Node, error)

	last     *coordinationv1.Lease // as the API server has stored it; nil if it is unknown
	attempts nodestatus.Attempts
}

// run renews the lease until ctx is done.
func (l *lease) run(ctx context.Context) {
	interval := nodestatus.RenewInterval(l.cfg.LeaseDuration)
	for ctx.Err() == nil {
		if err := l.renew(ctx); err != nil {
			l.attempts.Failed++
			l.cfg.Logger.WarnContext(ctx, "could not renew the lease of the node, will retry", "node", l.cfg.NodeName, "failures", l.attempts.Failed, "err", err)
		} else {
			l.attempts.Failed = 0
		}
		l.attempts.Last = l.cfg.Clock.Now()
		spread := time.Duration(float64(interval) * renewJitter * l.cfg.Random())
		sleepUntil(ctx, l.cfg.Clock, l.attempts.Next(interval+spread))
	}
}

// renew creates or updates the lease. It gets the lease only if the stored version is unknown.
func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	api := l.cfg.Heartbeats.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	base := l.last
	if base == nil {
		var err error
		base, err = api.Get(ctx, l.cfg.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return l.create(ctx)
		}
		if err != nil {
			return fmt.Errorf("get lease: %w", err)
		}
	}
	next, err := l.next(ctx, base)
	if err != nil {
		return err
	}
	stored, err := api.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			l.last = nil
		}
		return fmt.Errorf("update lease: %w", err)
	}
	l.last = stored
	return nil
}

func (l *lease) create(ctx context.Context) error {
	next, err := l.next(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.cfg.NodeName, Namespace: corev1.NamespaceNodeLease}})
	if err != nil {
		return err
	}
	stored, err := l.cfg.Heartbeats.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, next, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	l.last = stored
	return nil
}

// next returns a renewed copy of a lease. The node becomes the owner of the lease, so that the
// garbage collector of the cluster deletes the lease after the node.
func (l *lease) next(ctx context.Context, base *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	node, err := l.owner(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the owner of the lease: %w", err)
	}
	next := base.DeepCopy()
	next.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	next.Spec.HolderIdentity = &l.cfg.NodeName
	next.Spec.LeaseDurationSeconds = new(int32(l.cfg.LeaseDuration / time.Second))
	next.Spec.RenewTime = &metav1.MicroTime{Time: l.cfg.Clock.Now()}
	return next, nil
}
