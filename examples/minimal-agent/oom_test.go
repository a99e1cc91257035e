package main

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
)

// A process that takes all its memory at once is dead before the container's start
// has returned.
func TestAKillWaitsForItsContainerToBeSeen(t *testing.T) {
	hit := &podcache.Status{UID: "web", Containers: []*runtimeapi.ContainerStatus{
		{Id: "id-app", Labels: map[string]string{crilabels.ContainerName: "app"}},
	}}
	for name, c := range map[string]struct {
		kill  oomwatch.Kill
		sees  *podcache.Status // a second after the kill, by a list; nil: the runtime doesn't answer
		waits time.Duration
		whose string
	}{
		"of a pod's cgroup":            {oomwatch.Kill{PodUID: "web", ContainerID: "id-app"}, hit, time.Second, "app"},
		"of a cgroup without a pod":    {oomwatch.Kill{ContainerID: "id-app"}, hit, time.Second, "app"},
		"of a stranger":                {oomwatch.Kill{ContainerID: "id-other"}, hit, time.Second, ""},
		"of no container":              {oomwatch.Kill{}, hit, 0, ""},
		"while the runtime is stopped": {oomwatch.Kill{ContainerID: "id-app"}, nil, victimPatience, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &agent{cache: podcache.New(), pods: podmanager.New(), log: slog.New(slog.DiscardHandler)}
				pod := &corev1.Pod{}
				pod.UID, pod.Name = "web", "web"
				a.pods.AddPod(pod)
				began := time.Now()
				a.cache.UpdateTime(began.Add(-time.Millisecond)) // by a list before the kill
				c.kill.Time = began
				if c.sees != nil {
					time.AfterFunc(time.Second, func() {
						a.cache.Set(c.sees.UID, c.sees, nil, time.Now())
						a.cache.UpdateTime(time.Now())
					})
				}
				a.awaitVictim(t.Context(), c.kill)
				require.Equal(t, c.waits, time.Since(began))
				_, container, _ := a.hungry(c.kill.PodUID, c.kill.ContainerID)
				require.Equal(t, c.whose, container)

				if c.sees == nil {
					return
				}
				time.Sleep(time.Second)
				since := time.Now()
				a.awaitVictim(t.Context(), c.kill)
				require.Zero(t, time.Since(since), "the list since is known")
			})
		})
	}
}
