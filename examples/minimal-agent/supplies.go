package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// supplies are what pods need besides a runtime.
type supplies struct {
	objects *podsource.Store // ConfigMaps and Secrets among the manifests
	images  *images.Manager
	volumes *volumes.Manager
	cgroups *cgroups.Cgroupfs // nil without --cgroup-parent
	userIDs *podrunner.IDRanges
	hooks   *lifecycle.HookRunner
	exits   *exits
	backoff *backoffs
	// pullBackoff delays pulls after those that failed.
	pullBackoff *lifecycle.Backoff
}

// supply adds to the runner's config all that pods can ask for.
func (a *agent) supply(ctx context.Context, cfg *podrunner.Config) error {
	err := errors.Join(a.newBackoffs(ctx), a.newImages(), a.newVolumes(), a.newCgroups(), a.newUserIDs(), a.newHooks())
	if err != nil {
		return err
	}
	cfg.RestartBackoff = a.backoff.Backoff
	cfg.Images, cfg.Volumes, cfg.UserIDs, cfg.Hooks = a.images, a.volumes, a.userIDs, a.hooks
	if a.cgroups != nil {
		cfg.PodCgroups = a.cgroups
	}
	cfg.Resizer = a.node.cri
	cfg.Resized = func(uid types.UID) { a.pleg.RequestReinspect(uid) }
	cfg.RootDir, cfg.State = a.node.rootDir, a.store
	cfg.Exited = a.exits.of
	cfg.SeccompRoot = filepath.Join(a.node.rootDir, "seccomp")
	cfg.Policy, cfg.Facts = a.opts.policies.Pods, a.nodeFacts
	cfg.Events = a.events
	return nil
}

// planned is told what is about to be done to a pod.
func (a *agent) planned(_ *corev1.Pod, do podrunner.Actions) {
	if len(do.Start) > 0 {
		a.saves.Trigger() // their delays are about to grow
	}
}

func (a *agent) newImages() (err error) {
	a.images, err = images.New(images.Config{
		Images: a.pulls, Leases: a.imageGC, Objects: a.objects,
		Policy:  a.opts.policies.Images,
		Backoff: a.pullBackoff,
		State:   a.store, Events: a.events, Logger: a.log,
		Observer: a.node.metrics.Images(images.Observer{}),
	})
	return err
}

func (a *agent) newVolumes() (err error) {
	cfg := volumes.Config{Root: a.node.rootDir, Objects: a.objects, Allocatable: a.allocatable}
	if a.embedded() {
		cfg.Mounter = noMounts{} // nothing real runs, and whoever tries it may not be root
	}
	a.volumes, err = volumes.New(cfg)
	return err
}

// noMounts leaves on disk what would be on tmpfs.
type noMounts struct{}

func (noMounts) Tmpfs(string, int64) error             { return nil }
func (noMounts) Unmount(string) error                  { return nil }
func (noMounts) Mounts() ([]volumes.MountPoint, error) { return nil, nil }

func (a *agent) newCgroups() (err error) {
	if a.opts.policies.Cgroups == nil {
		return nil
	}
	cfg := *a.opts.policies.Cgroups
	if a.opts.policies.EnforceAllocatable {
		// Below it eviction has to act first.
		cfg.Allocatable = func() corev1.ResourceList {
			return nodestatus.Allocatable(a.capacity(), []corev1.ResourceList{a.opts.policies.Reserved})
		}
	}
	a.cgroups, err = cgroups.New(cfg)
	return err
}

func (a *agent) newUserIDs() (err error) {
	a.userIDs, err = podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: filepath.Join(a.node.rootDir, "pods")})
	return err
}

func (a *agent) newHooks() (err error) {
	a.hooks, err = lifecycle.NewHookRunner(lifecycle.HookConfig{
		Exec: a.node.cri, Dial: a.node.dial, Events: a.events, Logger: a.log, Observer: a.node.metrics.Hooks(lifecycle.HookObserver{}),
	})
	return err
}

// syncClasses gives the classes of pods their parts of the cpu.
func (a *agent) syncClasses(ctx context.Context, pods []*corev1.Pod) {
	if a.cgroups == nil {
		return
	}
	if err := a.cgroups.UpdateQoS(ctx, pods); err != nil {
		a.log.WarnContext(ctx, "setting the shares of pod classes failed", "err", err)
	}
}

// runObjects has pods look again when ConfigMaps and Secrets have changed: volumes
// show the new ones, and who waited for one starts.
func (a *agent) runObjects(ctx context.Context) error {
	for range a.objects.Subscribe(ctx) {
		for _, p := range a.pods.GetPods() {
			if !a.isRejected(p.UID) {
				a.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: p})
			}
		}
	}
	return nil
}

// whenDue returns the time of a pod's active deadline as a wish of its worker.
func (a *agent) whenDue(pod *corev1.Pod) error {
	due, ok := a.deadline.Due(pod)
	if !ok || !due.After(time.Now()) {
		return nil
	}
	return &podworker.RetryError{At: due, Err: errActive}
}

var errActive = errors.New("the pod has an active deadline")
