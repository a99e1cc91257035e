package nodeloop

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// positionPeriod is how often the position in the kernel's log is saved. The agent after
	// one that was killed reports no older kill a second time.
	positionPeriod = 10 * time.Second
	// victimPatience is how long a kill waits until the runtime shows its container.
	victimPatience = 10 * time.Second
	// savePatience is how long the end of Run waits for the position to be saved.
	savePatience = 5 * time.Second
	// oomPositionKey is where the position is stored.
	oomPositionKey = "oom-position.json"
)

// oomWatch is what the loop knows of the watcher of OOM kills.
type oomWatch struct {
	cfg    oomwatch.Config   // without Resume
	upkeep *loop.Loop        // reports failed sources and saves the position
	saved  oomwatch.Position // the stored one
	logged map[string]string // the last logged failure of each source
}

// newOOMWatch prepares the watcher of OOM kills. Without sources it does nothing.
func (l *Loop) newOOMWatch() error {
	if len(l.cfg.Host.OOM) == 0 {
		return nil
	}
	report := func(context.Context, oomwatch.Kill) {}
	if l.cfg.Events != nil {
		reporter, err := oomwatch.NewReporter(oomwatch.ReporterConfig{
			Events: l.cfg.Events, Node: l.reference, Pod: l.Victim, Clock: l.cfg.Clock,
		})
		if err != nil {
			return err
		}
		report = reporter.Report
	}
	o := &oomWatch{upkeep: loop.New(l.cfg.Clock), logged: map[string]string{}}
	observer := l.cfg.Observers.OOM
	// The watcher's lock is held during the callback: what follows is left to the other loop.
	observer.SourceFailed = then2(func(string, error) { o.upkeep.Trigger() }, observer.SourceFailed)
	// Without a Logger: the watcher logs each attempt, reportSources each cause.
	o.cfg = oomwatch.Config{
		Sources: l.cfg.Host.OOM, Clock: l.cfg.Clock, Observer: observer,
		Handler: func(ctx context.Context, kill oomwatch.Kill) {
			l.awaitVictim(ctx, kill)
			if ctx.Err() != nil {
				return // the next agent reports it
			}
			if l.isOfOthers(kill) {
				return
			}
			l.cfg.Logger.WarnContext(ctx, "the kernel has killed a process because memory was short", "kill", kill.String())
			report(ctx, kill)
			l.cfg.Observers.Killed(kill)
		},
	}
	l.oom = o
	return o.cfg.Validate()
}

// runOOM watches until ctx is done. It saves the position now and then, and at the end.
func (l *Loop) runOOM(ctx context.Context) error {
	o := l.oom
	if err := state.Load(ctx, l.cfg.State, oomPositionKey, &o.saved); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not read the position in the kernel's log: OOM kills before this start are not reported", "err", err)
	}
	o.cfg.Resume = o.saved
	watcher, err := oomwatch.New(o.cfg)
	if err != nil {
		return err
	}
	var upkeep sync.WaitGroup
	upkeep.Go(func() {
		// The only error is that it runs already, which it does not.
		_ = o.upkeep.Run(ctx, func(ctx context.Context) time.Duration {
			l.reportSources(ctx, watcher.Sources())
			l.savePosition(ctx, watcher.Position())
			return positionPeriod
		})
	})
	err = watcher.Run(ctx)
	upkeep.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), savePatience)
	defer cancel()
	l.savePosition(last, watcher.Position())
	return err
}

// reportSources records which sources have failed, and logs each failure once: a source is
// tried again for ever.
func (l *Loop) reportSources(ctx context.Context, sources []oomwatch.SourceStatus) {
	var failed []string
	for _, s := range sources {
		if s.Err == nil {
			continue
		}
		text := s.Err.Error()
		failed = append(failed, s.Name+": "+text)
		if l.oom.logged[s.Name] != text {
			l.oom.logged[s.Name] = text
			l.cfg.Logger.WarnContext(ctx, "a source of OOM kills has failed, will retry", "source", s.Name, "err", s.Err)
		}
	}
	var err error
	if len(failed) > 0 {
		err = errors.New(strings.Join(failed, "; "))
	}
	l.parts.record(partOOM, err)
}

// savePosition saves how far the kernel's log was read, if that has changed.
func (l *Loop) savePosition(ctx context.Context, at oomwatch.Position) {
	o := l.oom
	if at == o.saved || at == (oomwatch.Position{}) {
		return
	}
	if err := state.Save(ctx, l.cfg.State, oomPositionKey, at); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not save the position in the kernel's log, will retry", "retryIn", positionPeriod, "err", err)
		return
	}
	o.saved = at
}

// awaitVictim waits until the container of a kill is known, or missing in a list of the
// runtime that is newer than the kill: a process that uses all its memory at once is dead
// before its container is observed.
func (l *Loop) awaitVictim(ctx context.Context, kill oomwatch.Kill) {
	if kill.ContainerID == "" {
		return
	}
	if _, container, _ := l.Victim(kill.PodUID, kill.ContainerID); container != "" {
		return
	}
	limited, cancel := context.WithTimeout(ctx, victimPatience)
	defer cancel()
	if _, err := l.cfg.Pods.Await(limited, kill.PodUID, kill.Time); err != nil && ctx.Err() == nil {
		l.cfg.Logger.WarnContext(ctx, "could not identify the container of an OOM kill: the runtime shows nothing new", "kill", kill.String(), "err", err)
	}
}

// isOfOthers reports whether a kill hit a pod of another agent, which reports it. A kill that
// hit no pod is the node's.
func (l *Loop) isOfOthers(kill oomwatch.Kill) bool {
	if l.cfg.TakeOver || kill.PodUID == "" && kill.ContainerID == "" {
		return false
	}
	_, container, found := l.Victim(kill.PodUID, kill.ContainerID)
	return !found && container == ""
}

// Victim returns the pod and the name of the container that a cgroup belongs to, by what its
// path has of them: one of the arguments may be empty. The name is empty if the container is
// unknown.
func (l *Loop) Victim(pod types.UID, containerID string) (*corev1.Pod, string, bool) {
	for _, s := range l.cfg.Pods.Observed() {
		if pod != "" && s.UID != pod {
			continue
		}
		for _, c := range s.Containers {
			if c.GetId() == containerID {
				found, ok := l.cfg.Pods.Find(s.UID)
				return found, podcache.ContainerName(c), ok
			}
		}
	}
	found, ok := l.cfg.Pods.Find(pod)
	return found, "", ok
}
