package podworker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type apiObject = apiruntime.Object

// ourSide is the collaborators of our side.
type ourSide struct {
	*diary

	down, cancelled chan struct{}
}

func (s *ourSide) Inhibit(_ context.Context, need time.Duration) (allowed time.Duration, release func(), err error) {
	if allowed = s.world.Allowed; need > allowed {
		allowed = s.world.Overridden
	}
	if allowed == 0 { // logind waits for no lock
		return 0, nil, nil
	}
	s.take()
	return allowed, s.release, nil
}

func (s *ourSide) AwaitShutdown(ctx context.Context) error { return await(ctx, s.down) }

func (s *ourSide) AwaitCancel(ctx context.Context) error { return await(ctx, s.cancelled) }

func await(ctx context.Context, c chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c:
		return nil
	}
}

func (s *ourSide) KillPod(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
	return s.kill(ctx, pod, *how.Grace, how.StatusFn)
}

func (s *ourSide) Eventf(_ apiObject, kind, reason, format string, args ...any) {
	s.fact("event", fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(format, args...)))
}

func playOurs(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	if w.Shutdowns == nil {
		return accepted(w.Config.Validate())
	}
	synctest.Test(t, func(t *testing.T) {
		s := &ourSide{diary: &diary{world: w}, down: make(chan struct{}), cancelled: make(chan struct{})}
		periods := w.Config.GracePeriods()
		if periods == nil {
			all = s.play(func(bool) {})
			return
		}
		o := podworker.ShutdownOptions{AwaitVolumes: s.unmount, Events: s, Node: &corev1.Node{}}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() {
			err := podworker.HoldShutdown(ctx, s, w.Config.Total(), o, func(ctx context.Context, allowed time.Duration) {
				stages := podworker.PlanShutdown(s.now.pods(), periods, allowed)
				_ = podworker.Shutdown(ctx, s, stages, o)
			})
			if err != nil {
				s.fact("error", err.Error())
			}
		})
		all = s.play(func(down bool) {
			c := s.cancelled
			if down {
				c = s.down
			}
			go func() {
				select {
				case c <- struct{}{}:
				case <-ctx.Done(): // our side does not wait for the signal
				}
			}()
		})
		stop()
		run.Wait()
	})
	for i, s := range w.Shutdowns {
		withoutLateVolumes(s, all[i])
	}
	return all
}

// withoutLateVolumes removes the calls about volumes at the moment when a shutdown is
// cancelled: whether our side still makes the call is random.
func withoutLateVolumes(s shutdown, f judge.Facts) {
	for _, p := range s.Pods {
		name := "pod " + p.Name + "/volumes"
		if value := f[name]; value != "" && s.Cancelled > 0 && times(value)[0] >= s.Cancelled {
			delete(f, name)
		}
	}
}
