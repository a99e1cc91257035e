package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
)

// positionPeriod is how often is noted how far the kernel's log has been read: an
// agent that was killed tells nothing twice that is older.
const positionPeriod = 10 * time.Second

// victimPatience is how long a kill waits for the runtime to say whose it was.
const victimPatience = 10 * time.Second

// oomWatch tells of kills for want of memory.
type oomWatch struct {
	*oomwatch.Watcher
	store state.Store
	saved oomwatch.Position
	log   *slog.Logger
	mu    sync.Mutex
	said  map[string]string // what was wrong with each source
}

const oomPositionKey = "oom-position.json"

func (a *agent) newOOMWatch(ctx context.Context) error {
	if a.embedded() {
		return nil // what this machine's kernel kills is none of its pods
	}
	o := &oomWatch{store: a.store, log: a.log, said: map[string]string{}}
	o.load(ctx)
	sources, err := oomSources()
	if err != nil {
		return err
	}
	reporter, err := oomwatch.NewReporter(oomwatch.ReporterConfig{Events: a.events, Node: a.reference(), Pod: a.hungry})
	if err != nil {
		return err
	}
	o.Watcher, err = oomwatch.New(oomwatch.Config{
		Sources: sources, Resume: o.saved,
		Handler: func(ctx context.Context, kill oomwatch.Kill) {
			a.awaitVictim(ctx, kill)
			if ctx.Err() != nil {
				return // the next agent tells of it
			}
			a.log.WarnContext(ctx, "killed for want of memory", "kill", kill.String())
			a.node.metrics.Killed(kill, a.hungry)
			reporter.Report(ctx, kill)
		},
		Observer: a.node.metrics.OOMWatch(oomwatch.Observer{SourceFailed: o.failed}, a.hungry),
	})
	a.oom = o
	return err
}

// oomSources are the kernel's log and, where there are cgroups, its counters.
func oomSources() ([]oomwatch.Source, error) {
	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{})
	if err != nil {
		return nil, err
	}
	sources := []oomwatch.Source{kmsg}
	for mount, file := range map[string]string{"/sys/fs/cgroup": "cgroup.controllers", "/sys/fs/cgroup/memory": "cgroup.procs"} {
		if _, err := os.Stat(filepath.Join(mount, file)); err != nil {
			continue
		}
		counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: mount, Parent: "/"})
		if err != nil {
			return nil, err
		}
		sources = append(sources, counters)
	}
	return sources, nil
}

// failed says once what is wrong with a source, though it is tried again for ever.
func (o *oomWatch) failed(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said[name] != err.Error() {
		o.said[name] = err.Error()
		o.log.Warn("kills for want of memory can't be seen there; it is tried again", "source", name, "err", err)
	}
}

// awaitVictim waits until the container that was hit is known, or is not in a list made
// since: many a one is dead before anything was seen of it.
func (a *agent) awaitVictim(ctx context.Context, kill oomwatch.Kill) {
	if kill.ContainerID == "" {
		return
	}
	if _, container, _ := a.hungry(kill.PodUID, kill.ContainerID); container != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, victimPatience)
	defer cancel()
	if _, err := a.cache.GetNewerThan(ctx, kill.PodUID, kill.Time); err != nil && !errors.Is(err, context.Canceled) {
		a.log.WarnContext(ctx, "whose process was killed may not be known", "kill", kill.String(), "err", err)
	}
}

// hungry finds the pod that was hit.
func (a *agent) hungry(uid types.UID, containerID string) (*corev1.Pod, string, bool) {
	for _, s := range a.cache.Statuses() {
		if uid != "" && s.UID != uid {
			continue
		}
		for _, c := range s.Containers {
			if c.GetId() == containerID {
				pod, ok := a.pods.GetPodByUID(s.UID)
				return pod, podcache.ContainerName(c), ok
			}
		}
	}
	pod, ok := a.pods.GetPodByUID(uid)
	return pod, "", ok
}

func (a *agent) runOOM(ctx context.Context) error {
	if a.oom == nil {
		return nil
	}
	var saving sync.WaitGroup
	saving.Go(func() {
		// It ends with ctx, as nothing else ends it.
		_ = loop.New(clock.RealClock{}).Run(ctx, func(ctx context.Context) time.Duration { a.oom.save(ctx); return positionPeriod })
	})
	err := a.oom.Run(ctx)
	saving.Wait()
	a.oom.save(context.WithoutCancel(ctx))
	return err
}

func (o *oomWatch) load(ctx context.Context) {
	if err := state.Load(ctx, o.store, oomPositionKey, &o.saved); err != nil {
		o.log.WarnContext(ctx, "kills from before this start are not told: where the kernel's log was left is not known", "err", err)
	}
}

func (o *oomWatch) save(ctx context.Context) {
	at := o.Position()
	if at == o.saved || at == (oomwatch.Position{}) {
		return
	}
	if err := state.Save(ctx, o.store, oomPositionKey, at); err != nil {
		o.log.WarnContext(ctx, "noting how far the kernel's log was read failed", "err", err)
		return
	}
	o.saved = at
}
