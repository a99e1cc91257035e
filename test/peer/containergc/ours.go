package containergc

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playOurs(root string) func(*testing.T, *World) []judge.Facts {
	return func(t *testing.T, w *World) []judge.Facts {
		t.Helper()
		return play(t, w, root, func(t *testing.T, n *node) agent {
			t.Helper()
			told := &told{node: n}
			perPod, total := w.MaxPerPodContainer, w.MaxContainers
			cfg := containergc.Config{
				Runtime: n, Remover: n, Pods: n, SourcesReady: func() bool { return !n.step.NotReady },
				Policy:  containergc.Policy{MinAge: w.MinAge, MaxPerPodContainer: &perPod, MaxContainers: &total},
				PodLogs: n.pods(), ContainerLogs: root + "/containers",
				PreStop:  n.preStop,
				Recorder: ourRecorder{n}, Node: &corev1.Node{}, Clock: judge.WallClock{Offset: &n.offset}, Observer: told.observer(),
			}
			if w.Snapshot {
				cfg.Snapshot = n.snapshot
			}
			m, err := containergc.New(cfg)
			require.NoError(t, err)
			perPod, total = 7, 7 // to detect that New copies the limits
			return func(ctx context.Context, all bool) (err error) {
				told.begin()
				if all {
					err = m.DeleteAllUnusedContainers(ctx)
				} else {
					if w.Plans {
						told.planned(m.Plan(ctx))
					}
					told.result, err = m.Collect(ctx)
				}
				n.told = told.problems(err)
				return err
			}
		})
	}
}

// preStop runs a hook. In this test a hook is a command.
func (n *node) preStop(ctx context.Context, c containergc.Container) error {
	var hook corev1.LifecycleHandler
	err := json.Unmarshal([]byte(c.PreStop), &hook)
	if err == nil {
		_, _, err = n.ExecSync(ctx, c.ID, hook.Exec.Command, 0)
	}
	return err
}

type ourRecorder struct{ *node }

func (r ourRecorder) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, reason+" "+faults(fmt.Errorf(format, args...)))
}
