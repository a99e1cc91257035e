package podloop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
	"github.com/kubeparts/kubeparts/status"
)

// failedSync is the reason of the event about a pod whose state in the runtime is unknown, the same
// as the kubelet's.
const failedSync = "FailedSync"

// New returns a Loop. It starts nothing and opens nothing. The error reports the problems with cfg.
func New(cfg Config) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	l := &Loop{
		cfg:              cfg,
		cache:            podcache.New(),
		exits:            newExits(),
		remover:          newRemover(cfg.Clock, cfg.Logger),
		unpublished:      newUnpublished(),
		housekeepingLoop: loop.New(cfg.Clock),
		qos:              loop.New(cfg.Clock),
		queue:            newQueue(),
		listed:           make(chan struct{}),
		stopped:          make(chan struct{}),
		records:          map[types.UID]record{},
		moved:            make(chan struct{}),
	}
	for _, s := range cfg.Sources {
		l.filters = append(l.filters, &podFilter{source: s.Name})
	}
	l.remover.remove, l.remover.removed, l.remover.name = l.removePod, l.podRemoved, l.podName
	err := errors.Join(l.newMerge(), l.newPLEG(), l.newBackoffs(), l.newHooks(), l.newProbes(), l.newRunner(),
		l.newWorkers(), l.newStatuses())
	if err != nil {
		return nil, err
	}
	l.deadline = lifecycle.ActiveDeadline{Clock: cfg.Clock, Status: l.statuses.GetPodStatus}
	if err := l.newAdmission(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Loop) newMerge() (err error) {
	var names []string
	for _, s := range l.cfg.Sources {
		names = append(names, s.Name)
	}
	answered := map[string]bool{} // needs no lock, because the handler is not called concurrently
	l.merge, err = podmanager.NewMerge(podmanager.MergeConfig{
		Sources: names,
		Handler: func(_ context.Context, c podmanager.Change) {
			first := !answered[c.Source]
			answered[c.Source] = true
			l.post(func() { l.defined(c, first) })
		},
		Observer: podmanager.MergeObserver{ConflictsChanged: func(_, _ []podmanager.Conflict) { l.cfg.Changed() }},
		Logger:   l.cfg.Logger,
	})
	return err
}

func (l *Loop) newPLEG() (err error) {
	observer := l.cfg.Observers.PLEG
	observer.RelistEnd = func(r pleg.Result, err error) {
		if l.cfg.Observers.PLEG.RelistEnd != nil {
			l.cfg.Observers.PLEG.RelistEnd(r, err)
		}
		l.cfg.Node.Relisted(err)
	}
	l.pleg, err = pleg.New(pleg.Config{
		Runtime:       l.cfg.Runtime,
		Lister:        l.cfg.Lister,
		Events:        l.cfg.Runtime,
		Cache:         l.cache,
		Handler:       func(_ context.Context, e pleg.Event) { l.plegEvent(e) },
		LabelSelector: l.ownLabels(),
		Random:        l.cfg.Random,
		Clock:         l.cfg.Clock,
		Logger:        l.cfg.Logger,
		Observer:      observer,
	})
	return err
}

func (l *Loop) newBackoffs() error {
	cfg := l.cfg.Restarts
	if cfg.Clock == nil {
		cfg.Clock = l.cfg.Clock
	}
	restarts, errRestarts := lifecycle.NewBackoff(cfg)
	pulls, errPulls := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: l.cfg.Clock})
	l.restarts = &savedBackoff{Backoff: restarts, store: l.cfg.State, log: l.cfg.Logger, loop: loop.New(l.cfg.Clock)}
	l.pulls = pulls
	return errors.Join(errRestarts, errPulls)
}

func (l *Loop) newHooks() (err error) {
	l.hooks, err = lifecycle.NewHookRunner(lifecycle.HookConfig{
		Exec: l.cfg.Runtime, Dial: l.cfg.Dial, Events: l.cfg.Events, Clock: l.cfg.Clock, Logger: l.cfg.Logger, Observer: l.cfg.Observers.Hooks,
	})
	return err
}

func (l *Loop) newProbes() error {
	grpc, err := grpcprobe.New(grpcprobe.Config{Dial: l.cfg.Dial, Clock: l.cfg.Clock})
	if err != nil {
		return err
	}
	began := l.cfg.Clock.Now()
	l.probes, err = newProbes(prober.Config{
		Lookup: func(uid types.UID, container string) (prober.Target, bool) { return l.target(uid, container, began) },
		Runner: commands{l.cfg.Runtime},
		Dial:   l.cfg.Dial,
		Events: l.cfg.Events,
		Clock:  l.cfg.Clock,
		Logger: l.cfg.Logger,

		History:  probeHistory,
		Observer: l.cfg.Observers.Probes,
	}, grpc)
	return err
}

func (l *Loop) newRunner() error {
	observer := l.cfg.Observers.Runner
	observer.Planned = func(pod *corev1.Pod, do podrunner.Actions) {
		if len(do.Start) > 0 {
			l.restarts.trigger()
		}
		if l.cfg.Observers.Runner.Planned != nil {
			l.cfg.Observers.Runner.Planned(pod, do)
		}
	}
	observer.ContainerStarted = func(s podrunner.ContainerStart) {
		l.restarts.trigger()
		if l.cfg.Observers.Runner.ContainerStarted != nil {
			l.cfg.Observers.Runner.ContainerStarted(s)
		}
	}
	cfg := podrunner.Config{
		Policy:     l.cfg.Pods,
		Sandboxes:  l.cfg.Runtime,
		Containers: l.cfg.Runtime,
		Hooks:      l.hooks,
		Resizer:    l.cfg.Runtime,
		Resized:    func(uid types.UID) { l.pleg.RequestReinspect(uid) },
		// If newProbes has failed, l.probes may be nil, but then this function is never called.
		Probes:         func(id string) podrunner.ProbeResults { return l.probes.results(id) },
		Refresh:        l.refresh,
		Exited:         l.exits.of,
		LogRoot:        l.cfg.PodLogs,
		ContainerLogs:  l.cfg.ContainerLogs,
		RootDir:        l.cfg.Root,
		State:          l.cfg.State,
		Agent:          l.cfg.Name,
		Facts:          l.cfg.Node.Facts,
		RestartBackoff: l.restarts.Backoff,
		Events:         l.cfg.Events,
		Clock:          l.cfg.Clock,
		Logger:         l.cfg.Logger,
		Observer:       observer,
	}
	if l.cfg.Cgroups != nil {
		cfg.PodCgroups = l.cfg.Cgroups
	}
	if len(l.cfg.Allocators) > 0 {
		cfg.Inject = resources.Combine(l.cfg.Allocators...)
	}
	if err := errors.Join(l.addImages(&cfg), l.addFolders(&cfg)); err != nil {
		return err
	}
	var err error
	l.runner, err = podrunner.New(cfg)
	return err
}

func (l *Loop) addImages(cfg *podrunner.Config) error {
	m, err := images.New(images.Config{
		Policy: l.cfg.Images, Images: l.cfg.Node.Images, Leases: l.cfg.Node.Leases,
		Objects: l.cfg.Objects, Credentials: l.cfg.Credentials, Tokens: l.cfg.Tokens,
		Backoff: l.pulls, State: l.cfg.State, Events: l.cfg.Events,
		Clock: l.cfg.Clock, Logger: l.cfg.Logger, Observer: l.cfg.Observers.Images,
	})
	cfg.Images, l.images = m, m
	return err
}

// addFolders configures the parts that need Root. Without Root, pods that need these parts are
// refused.
func (l *Loop) addFolders(cfg *podrunner.Config) error {
	if l.cfg.Root == "" {
		return nil
	}
	v, errVolumes := volumes.New(volumes.Config{
		Root: l.cfg.Root, Plugins: l.cfg.Volumes, Objects: l.cfg.Objects, Tokens: l.cfg.Tokens, Mounter: l.cfg.Mounter,
		Allocatable: func() corev1.ResourceList { return l.cfg.Node.Facts().Allocatable },
		Clock:       l.cfg.Clock,
		Observer:    l.cfg.Observers.Volumes,
	})
	ids, errIDs := podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: filepath.Join(l.cfg.Root, "pods")})
	cfg.Volumes, cfg.UserIDs = v, ids
	cfg.SeccompRoot = filepath.Join(l.cfg.Root, "seccomp")
	return errors.Join(errVolumes, errIDs)
}

func (l *Loop) newWorkers() (err error) {
	observer := l.cfg.Observers.Workers
	observer.PhaseChanged = l.workerMoved
	observer.SyncEnded = l.syncEnded
	l.workers, err = podworker.New(podworker.Config{
		Syncer:       syncer{l},
		Cache:        l.cache,
		AfterSync:    func(uid types.UID) { l.pleg.RequestRelist(uid) },
		ResyncPeriod: l.cfg.SyncPeriod,
		Jitter:       l.cfg.Random,
		Clock:        l.cfg.Clock,
		Observer:     observer,
		Logger:       l.cfg.Logger,
	})
	return err
}

// syncEnded records an event if a pod could not be synced because its state in the runtime is
// unknown.
func (l *Loop) syncEnded(info podworker.SyncInfo) {
	e, unknown := errors.AsType[*podworker.StatusError](info.Err)
	if unknown && info.Pod != nil && !errors.Is(e.Err, context.Canceled) { // the sync may have been cancelled
		l.cfg.Events.Eventf(info.Pod, corev1.EventTypeWarning, failedSync, "error determining status: %v", e.Err)
	}
	if ended := l.cfg.Observers.Workers.SyncEnded; ended != nil {
		ended(info)
	}
}

func (l *Loop) newStatuses() (err error) {
	observer := l.cfg.Observers.Statuses
	observer.StatusChanged = func(c status.Change) {
		if l.cfg.Observers.Statuses.StatusChanged != nil {
			l.cfg.Observers.Statuses.StatusChanged(c)
		}
		l.cfg.Changed()
	}
	l.saved = status.NewSaved(l.cfg.State)
	l.statuses, err = status.New(status.Config{
		Pod:      l.Find,
		Saved:    l.savedStatus,
		Clock:    l.cfg.Clock,
		Logger:   l.cfg.Logger,
		Observer: observer,
	})
	if err != nil {
		return err
	}
	// Each sink has its own publisher, so that statuses are saved even if the API server is down
	// or has deleted the pod.
	sinks := []status.Sink{l.saved}
	if l.cfg.Sink != nil {
		sinks = append(sinks, l.cfg.Sink)
	}
	for i, sink := range sinks {
		cfg := status.PublisherConfig{Statuses: l.statuses, Sink: sink, Random: l.cfg.Random, Clock: l.cfg.Clock, Logger: l.cfg.Logger}
		if i == len(sinks)-1 {
			cfg.Observer = l.unpublished.observe(l.cfg.Observers.Publisher)
		}
		p, err := status.NewPublisher(cfg)
		if err != nil {
			return err
		}
		l.publishers = append(l.publishers, p)
	}
	return nil
}
