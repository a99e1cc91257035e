package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// recorded records the events about the node.
type recorded struct {
	mu  sync.Mutex
	all []string
}

// AnnotatedEventf implements agent.EventRecorder.
func (r *recorded) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := object.(*corev1.ObjectReference); o.Kind == "Node" {
		r.all = append(r.all, fmt.Sprintf("%s %s/%s %s: %s %s", o.APIVersion, o.Name, o.UID, kind, reason, fmt.Sprintf(format, args...)))
	}
}

// TestEvents_LimitsOfAllPods uses a folder with the files of cgroup v2. First, the limit of the
// memory can't be written.
func TestEvents_LimitsOfAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limited atomic.Int32
		root, seen, c := t.TempDir(), &recorded{}, config(newNode(t), newSource().file())
		limit := filepath.Join(root, "kubepods", "memory.max")
		require.NoError(t, os.MkdirAll(limit, 0o700))
		for _, name := range []string{"cgroup.controllers", "cgroup.subtree_control"} {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
		}
		c.Cgroups = &cgroups.Config{Root: root, Version: cgroups.V2, Limited: func(string, error) { limited.Add(1) }}
		c.EnforceAllocatable, c.Events = true, seen
		a := start(t, c)
		after(90 * time.Second)
		require.NoError(t, os.Remove(limit))
		after(10 * time.Minute)
		a.stop()
		require.Equal(t, []string{
			"v1 node1/node1 Normal: Starting Starting kubelet.",
			"v1 node1/node1 Warning: FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits \"/kubepods\": open " + limit + ": is a directory",
			"v1 node1/node1 Normal: NodeAllocatableEnforced Updated Node Allocatable limit across pods",
		}, slices.Compact(seen.all), "each failed attempt has an event")
		require.GreaterOrEqual(t, limited.Load(), int32(2), "the callback of the configuration is called too")
	})
}
