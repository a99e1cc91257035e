package termination

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playOurs(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, stop := newNode(w)
		left := lifecycle.Seconds(w.Grace)
		err := lifecycle.Terminate(t.Context(), lifecycle.Termination{
			Plan:     lifecycle.PlanTermination(w.Pod, w.states(), left),
			Deadline: lifecycle.NewDeadline(nil, time.Now().Add(left)),
			Stop:     n.stop,
			PreStop:  func(ctx context.Context, container string, _ *corev1.LifecycleHandler) { _ = n.hook(ctx, container) },
			Exited:   func(container string) <-chan struct{} { return n.ended[container] },
		})
		n.over(err)
		stop()
		all = []judge.Facts{n.facts}
	})
	return all
}
