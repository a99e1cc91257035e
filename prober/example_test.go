package prober_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/prober"
)

// shell runs commands. An agent uses CRI's ExecSync.
type shell struct{ exitCode int32 }

func (s *shell) Exec(_ context.Context, r prober.ExecRequest) (int32, error) {
	fmt.Fprintf(r.Output, "%v says %d", r.Command, s.exitCode)
	return s.exitCode, nil
}

// A container whose liveness probe fails three times in a row must be killed.
func Example() {
	pod := &corev1.Pod{}
	pod.UID = "1234"
	pod.Spec.Containers = []corev1.Container{{
		Name: "web",
		LivenessProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"healthy"}}},
			FailureThreshold: 3,
		},
	}}
	runner := &shell{}
	manager, err := prober.New(prober.Config{
		Runner: runner,
		Lookup: func(types.UID, string) (prober.Target, bool) {
			return prober.Target{ID: "abc", State: prober.Running, StartedAt: time.Now()}, true
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager.AddPod(pod)

	ctx := context.Background() // an agent calls manager.Run(ctx) instead of Probe
	key := prober.Key{PodUID: "1234", Container: "web", Kind: prober.Liveness}
	for _, runner.exitCode = range []int32{0, 1, 1, 1} {
		run, err := manager.Probe(ctx, key)
		fmt.Println(run.Outcome, run.Result, err)
	}
	fmt.Println(manager.History(key)[3].Output)
	// Output:
	// success Success <nil>
	// failure Success <nil>
	// failure Success <nil>
	// failure Failure <nil>
	// [healthy] says 1
}
