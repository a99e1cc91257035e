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
	// positionPeriod is the time between two saves of the position in the kernel's log. After a
	// crash of the agent, only kills of this period are reported again.
	positionPeriod = 10 * time.Second
	// victimTimeout is how long the handler of a kill waits until the pod loop has observed the
	// container.
	victimTimeout = 10 * time.Second
	// saveTimeout is the time limit for saving the position at the end of Run.
	saveTimeout = 5 * time.Second
	// oomPositionKey is the key of the stored position.
	oomPositionKey = "oom-position.json"
)

// oomWatch is the state of the watcher of OOM kills.
type oomWatch struct {
	cfg         oomwatch.Config   // without Resume
	maintenance *loop.Loop        // reports failed sources and saves the position periodically
	saved       oomwatch.Position // the last stored position
	logged      map[string]string // the last logged failure of each source
}

// newOOMWatch configures the watcher of OOM kills. If the host has no sources of OOM kills,
// newOOMWatch does nothing.
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
	o := &oomWatch{maintenance: loop.New(l.cfg.Clock), logged: map[string]string{}}
	observer := l.cfg.Observers.OOM
	// The watcher calls SourceFailed with its lock held, so the callback only triggers the
	// maintenance loop.
	observer.SourceFailed = chain2(func(string, error) { o.maintenance.Trigger() }, observer.SourceFailed)
	// Set no Logger, because the watcher would log each attempt. reportSources logs each cause
	// once.
	o.cfg = oomwatch.Config{
		Sources: l.cfg.Host.OOM, Clock: l.cfg.Clock, Observer: observer,
		Handler: func(ctx context.Context, kill oomwatch.Kill) {
			l.awaitVictim(ctx, kill)
			if ctx.Err() != nil {
				return // the next agent will report the kill
			}
			if l.belongsToOtherAgent(kill) {
				return
			}
			l.cfg.Logger.WarnContext(ctx, "the kernel OOM-killed a process", "kill", kill.String())
			report(ctx, kill)
			l.cfg.Observers.Killed(kill)
		},
	}
	l.oom = o
	return o.cfg.Validate()
}

// runOOM watches for OOM kills until ctx is done. It saves the position periodically and at the
// end.
func (l *Loop) runOOM(ctx context.Context) error {
	o := l.oom
	if err := state.Load(ctx, l.cfg.State, oomPositionKey, &o.saved); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not read the saved position in the kernel's log, OOM kills before this start are not reported", "err", err)
	}
	o.cfg.Resume = o.saved
	watcher, err := oomwatch.New(o.cfg)
	if err != nil {
		return err
	}
	var maintenance sync.WaitGroup
	maintenance.Go(func() {
		// Run only fails if it is running already, which can't happen here.
		_ = o.maintenance.Run(ctx, func(ctx context.Context) time.Duration {
			l.reportSources(ctx, watcher.Sources())
			l.savePosition(ctx, watcher.Position())
			return positionPeriod
		})
	})
	err = watcher.Run(ctx)
	maintenance.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	l.savePosition(last, watcher.Position())
	return err
}

// reportSources records the failed sources. It logs a failure only if the cause differs from the
// last logged cause of the source, because the watcher retries a failed source without end.
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
			l.cfg.Logger.WarnContext(ctx, "could not read OOM kills from a source, will retry", "source", s.Name, "err", s.Err)
		}
	}
	var err error
	if len(failed) > 0 {
		err = errors.New(strings.Join(failed, "; "))
	}
	l.parts.record(partOOM, err)
}

// savePosition saves the position in the kernel's log if it has changed.
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

// awaitVictim returns immediately if the kill has no container ID, or if the pod loop has observed
// the container. The kernel may kill a process earlier. awaitVictim then waits until the observed
// state of the pod is not older than the kill, but at most victimTimeout.
func (l *Loop) awaitVictim(ctx context.Context, kill oomwatch.Kill) {
	if kill.ContainerID == "" {
		return
	}
	if _, container, _ := l.Victim(kill.PodUID, kill.ContainerID); container != "" {
		return
	}
	limited, cancel := context.WithTimeout(ctx, victimTimeout)
	defer cancel()
	if _, err := l.cfg.Pods.Await(limited, kill.PodUID, kill.Time); err != nil && ctx.Err() == nil {
		l.cfg.Logger.WarnContext(ctx, "could not identify the container of an OOM kill, no relist of its pod completed in time", "kill", kill.String(), "err", err)
	}
}

// belongsToOtherAgent reports whether the killed process was in a pod of another agent. The
// other agent reports this kill. If the process was not in a pod, or if Config.TakeOver is set,
// belongsToOtherAgent returns false.
func (l *Loop) belongsToOtherAgent(kill oomwatch.Kill) bool {
	if l.cfg.TakeOver || kill.PodUID == "" && kill.ContainerID == "" {
		return false
	}
	_, container, found := l.Victim(kill.PodUID, kill.ContainerID)
	return !found && container == ""
}

// Victim returns the pod and the container name for the pod UID and the container ID in a
// cgroup's path. One of the arguments may be empty. The name is empty if the container is
// unknown. Victim returns false if the pod has no definition.
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
