package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// newContainerGC wires what removes containers that have ended, and logs that nobody
// owns any more. The cache tells it what there is.
func (a *agent) newContainerGC() (err error) {
	a.containerGC, err = containergc.New(containergc.Config{
		Runtime:      a.node.cri,
		Remover:      a.node.cri,
		Pods:         gonePods{a},
		SourcesReady: func() bool { return a.sourceReady() == nil && a.pleg.Healthy() == nil },
		Policy: containergc.Policy{
			MaxPerPodContainer: &a.opts.deadPerContainer,
			MaxContainers:      &a.opts.deadAll,
		},
		PodLogs:       a.logRoot(),
		ContainerLogs: a.containerLogs(),
		PreStop:       a.preStop,
		Snapshot:      a.runtimeSnapshot,
		Recorder:      a.events,
		Node:          a.reference(),
		Logger:        a.log,
		Observer:      a.node.metrics.ContainerGC(containergc.Observer{Collected: func(_ containergc.Result, err error) { a.passes.ended("containers", err) }}),
	})
	return err
}

// preStop runs the preStop hook of a container in an unknown state. The hook runner
// records its failure.
func (a *agent) preStop(ctx context.Context, c containergc.Container) error {
	hook := &corev1.LifecycleHandler{}
	if err := json.Unmarshal([]byte(c.PreStop), hook); err != nil {
		return fmt.Errorf("read the preStop hook of container %s: %w", c.Name, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: c.PodUID, Namespace: c.Namespace, Name: c.Pod}}
	ip := ""
	if len(a.host.ips) > 0 {
		ip = a.host.ips[0] // of a pod in the node's network
	}
	if s, _ := a.cache.Get(c.PodUID); len(s.Sandboxes) > 0 {
		ip = cmp.Or(s.Sandboxes[0].GetNetwork().GetIp(), ip)
	}
	a.hooks.Run(ctx, lifecycle.Hook{
		Kind: lifecycle.PreStop, Pod: pod, Container: &corev1.Container{Name: c.Name, Lifecycle: &corev1.Lifecycle{PreStop: hook}},
		ContainerID: c.ID, PodIP: ip, Deadline: lifecycle.NewDeadline(nil, time.Now().Add(c.StopGrace)),
	})
	return nil
}

// runtimeSnapshot returns what the cache has: all that this agent lists, and may remove.
func (a *agent) runtimeSnapshot(context.Context) (s containergc.Snapshot, _ error) {
	for _, pod := range a.cache.Statuses() {
		for _, box := range pod.Sandboxes {
			s.Sandboxes = append(s.Sandboxes, containergc.SandboxFromStatus(box))
		}
		for _, c := range pod.Containers {
			s.Containers = append(s.Containers, containergc.ContainerFromStatus(c, pod.SandboxOf[c.GetId()]))
		}
	}
	return s, nil
}

// gonePods says which pods are gone. Those that the sweep removes are not, for as
// long as there is anything of them in the runtime, nor those being removed.
type gonePods struct{ *agent }

func (g gonePods) ShouldPodContentBeRemoved(uid types.UID) bool {
	return g.workers.ShouldPodContentBeRemoved(uid) && !g.swept(uid)
}

func (g gonePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return g.workers.ShouldPodRuntimeBeRemoved(uid) && !g.swept(uid)
}

func (g gonePods) swept(uid types.UID) bool {
	g.mu.Lock()
	_, known := g.pods.GetPodByUID(uid)
	wanted := known && !g.rejected[uid]
	g.mu.Unlock()
	s, _ := g.cache.Get(uid)
	return g.removals.underWay(uid) || !wanted && isShown(s)
}

// newLogRotation wires what keeps the logs of running containers small.
func (a *agent) newLogRotation() (err error) {
	a.logs, err = logrotate.New(logrotate.Config{
		Runtime:  a.node.cri,
		Running:  a.runningLogs,
		PodLogs:  a.logRoot(),
		Policy:   a.opts.policies.Logs,
		Logger:   a.log,
		Observer: a.node.metrics.Logs(logrotate.Observer{Checked: func(_ logrotate.Result, err error) { a.passes.ended("logs", err) }}),
	})
	return err
}

func (a *agent) runningLogs(context.Context) (logs []logrotate.Log, _ error) {
	for _, pod := range a.cache.Statuses() {
		for _, c := range pod.Containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetLogPath() != "" {
				logs = append(logs, logrotate.Log{ContainerID: c.GetId(), Path: c.GetLogPath()})
			}
		}
	}
	return logs, nil
}
