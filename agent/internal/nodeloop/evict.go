package nodeloop

import (
	"context"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// killer evicts pods through the pod loop.
type killer struct{ pods Pods }

// Kill ends a pod and returns when nothing of it runs.
func (k killer) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
	if defined, ok := k.pods.Find(pod.UID); ok {
		pod = defined // Pods.Active may have returned a changed copy
	}
	grace := time.Duration(e.GracePeriodSeconds) * time.Second
	return k.pods.Evict(ctx, pod, podworker.KillOptions{Evict: true, Grace: &grace, StatusFn: e.Apply})
}

// imageReclaim deletes as many unused images as are needed, and leaves the others for later
// pods. How many inodes an image takes is unknown: for inodes all unused images go.
type imageReclaim struct{ images *imagegc.Manager }

// DeleteUnusedImages deletes images that no container uses.
func (r imageReclaim) DeleteUnusedImages(ctx context.Context, need eviction.ReclaimPlan) error {
	if need.Amount > 0 && strings.HasSuffix(string(need.Signal), ".available") {
		_, err := r.images.Free(ctx, uint64(need.Amount))
		return err
	}
	return r.images.DeleteUnusedImages(ctx)
}

// layersLinger is how long after the removal of a container its layer may still be on the
// disk: containerd deletes layers in the background.
const layersLinger = 5 * time.Second

// cleanup reports when an evicted pod has freed the disk.
type cleanup struct {
	cleanedUp func(types.UID) bool
	clock     clock.PassiveClock
	at        map[types.UID]time.Time // since when nothing of a pod is left
}

// done reports whether nothing of a pod is left on the disk, for layersLinger. One step of
// the eviction manager at a time calls it, until it returns true or 30 s are over.
func (c *cleanup) done(uid types.UID) bool {
	now := c.clock.Now()
	maps.DeleteFunc(c.at, func(_ types.UID, at time.Time) bool { return now.Sub(at) > time.Minute }) // not asked about again
	if !c.cleanedUp(uid) {
		delete(c.at, uid)
		return false
	}
	if _, known := c.at[uid]; !known {
		c.at[uid] = now
	}
	return now.Sub(c.at[uid]) >= layersLinger
}
