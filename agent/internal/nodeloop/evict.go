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

// Kill stops a pod and returns when none of its containers runs.
func (k killer) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
	if defined, ok := k.pods.Find(pod.UID); ok {
		pod = defined // Pods.Active may have returned a changed copy
	}
	grace := time.Duration(e.GracePeriodSeconds) * time.Second
	return k.pods.Evict(ctx, pod, podworker.KillOptions{Evict: true, Grace: &grace, StatusFn: e.Apply})
}

// imageReclaim deletes only as many unused images as needed, so that later pods can use the
// other images. To free inodes, it deletes all unused images, because the number of inodes of an
// image is unknown.
type imageReclaim struct{ images *imagegc.Manager }

// DeleteUnusedImages deletes images that no container uses.
func (r imageReclaim) DeleteUnusedImages(ctx context.Context, need eviction.ReclaimPlan) error {
	if need.Amount > 0 && strings.HasSuffix(string(need.Signal), ".available") {
		_, err := r.images.Free(ctx, uint64(need.Amount))
		return err
	}
	return r.images.DeleteUnusedImages(ctx)
}

// layerRemovalDelay is how long the layer of a removed container may remain on the disk.
// containerd deletes layers in the background.
const layerRemovalDelay = 5 * time.Second

// cleanup reports whether an evicted pod has freed its disk space.
type cleanup struct {
	cleanedUp func(types.UID) bool
	clock     clock.PassiveClock
	at        map[types.UID]time.Time // when each pod was first found to be cleaned up
}

// done reports whether layerRemovalDelay has passed since the pod was cleaned up. The eviction
// manager calls done in each evaluation of the thresholds, until done returns true or 30 s have
// passed. Calls of done are never concurrent.
func (c *cleanup) done(uid types.UID) bool {
	now := c.clock.Now()
	maps.DeleteFunc(c.at, func(_ types.UID, at time.Time) bool { return now.Sub(at) > time.Minute }) // the eviction manager no longer calls done for these pods
	if !c.cleanedUp(uid) {
		delete(c.at, uid)
		return false
	}
	if _, known := c.at[uid]; !known {
		c.at[uid] = now
	}
	return now.Sub(c.at[uid]) >= layerRemovalDelay
}
