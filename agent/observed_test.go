package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

// TestObservers_CgroupOperations uses a folder without cgroups, in which each operation fails. The
// observer receives failed operations too.
func TestObservers_CgroupOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		operations := map[string]bool{}
		pods, c := newSource(newPod("web", "demo/web:1")), config(newNode(t))
		c.Sources = []agent.Source{pods.file()}
		c.Cgroups = &cgroups.Config{Root: t.TempDir(), Version: cgroups.V1}
		c.Observers.Cgroups = func(operation string, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			operations[operation] = true
			require.GreaterOrEqual(t, took, time.Duration(0))
		}
		a := start(t, c)
		after(30 * time.Second)
		pods.define()
		after(time.Minute)
		a.stop()
		require.Equal(t, map[string]bool{"create": true, "update": true, "destroy": true}, operations)
	})
}

// withLogs adds the disk usage of container logs to the statistics of package fakehost, which does
// not measure logs. The logs of the pod "new" were not measured yet.
type withLogs struct{ host.Stats }

func (s withLogs) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	all, err := s.Stats.Pods(ctx, pods)
	for i := range all {
		var logs eviction.DiskUsage
		if all[i].UID != "uid-new" {
			logs.Bytes = eviction.Usage{Value: 7, Time: time.Now()}
		}
		all[i].Containers = []eviction.ContainerStats{{Name: "main", Logs: logs}}
	}
	return append(all, eviction.PodStats{UID: "stranger"}), err
}

// TestAgent_Measurements checks that the agent returns the figures of the fake machine and of
// container logs.
func TestAgent_Measurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newPod("web", "demo/web:1")
		c := config(newNode(t), newSource(web, newPod("new", "demo/web:1")).file())
		c.Host.Stats = withLogs{c.Host.Stats}
		idle, err := agent.New(c)
		require.NoError(t, err)
		require.Zero(t, idle.CgroupVersion(), "nothing is known before Run")
		require.Empty(t, idle.LogBytes())
		a := start(t, c)
		after(30 * time.Second)
		require.Equal(t, 2, a.CgroupVersion())
		pod, known := a.Pod(web.UID)
		require.True(t, known)
		logs := a.LogBytes()
		require.Len(t, logs, 1)
		require.Equal(t, pod.Spec.UID, logs[0].Pod.UID)
		require.Equal(t, agent.LogUsage{Pod: logs[0].Pod, Container: "main", Bytes: 7}, logs[0])
		decision, err := a.PlanEviction(t.Context())
		require.NoError(t, err)
		require.False(t, decision.At.IsZero())
		require.Empty(t, decision.Victims)
	})
}
