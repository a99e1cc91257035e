package main

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
)

// upkeep is what keeps the machine usable, whatever pods do to it. Who removes what:
//
//	the sweep    all that is left of a pod that no manifest asks for
//	containerGC  containers that have ended of pods that somebody asks for, all but
//	             the last of a name; what the removal of an evicted pod has left; log
//	             folders of pods of which there is nothing else
//	imageGC      images
//	logs         what a running container has logged long ago
//	eviction     pods, when all that is not enough, with their containers and logs
type upkeep struct {
	stats       *statistics // nil with the embedded runtime
	measures    eviction.Stats
	policy      eviction.Policy
	eviction    *eviction.Manager
	removedAt   map[types.UID]time.Time // when nothing of an evicted pod was seen any more
	imageGC     *imagegc.Manager
	pulls       *puller
	containerGC *containergc.Manager
	logs        *logrotate.Rotator
	oom         *oomWatch // nil with the embedded runtime
}

func (a *agent) newUpkeep(ctx context.Context) error {
	return errors.Join(a.newImageGC(ctx), a.newContainerGC(), a.newLogRotation(), a.newEviction(), a.newOOMWatch(ctx))
}

// embedded says that nothing real runs: what this machine has does not matter then.
func (a *agent) embedded() bool { return a.node.fake != nil }
