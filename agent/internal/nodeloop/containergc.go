package nodeloop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// newContainerGC creates the manager that removes logs without a pod, and exited containers
// except the newest container of each name.
func (l *Loop) newContainerGC() (err error) {
	observer := l.cfg.Observers.ContainerGC
	observer.Collected = chain2(func(_ containergc.Result, err error) { l.parts.record(partContainers, err) }, observer.Collected)
	cfg := containergc.Config{
		Runtime:      l.cfg.Runtime,
		Remover:      l.cfg.Runtime,
		Pods:         podState{l.cfg.Pods},
		SourcesReady: l.isUpToDate,
		Policy:       l.cfg.ContainerGC,
		PreStop:      l.preStop,
		Snapshot:     l.snapshot,
		Clock:        l.cfg.Clock,
		Logger:       l.cfg.Logger,
		Observer:     observer,
	}
	if l.cfg.PodLogs != "" {
		cfg.PodLogs, cfg.ContainerLogs = l.cfg.PodLogs, l.cfg.ContainerLogs
	}
	if l.cfg.Events != nil {
		cfg.Node, cfg.Recorder = l.reference, l.cfg.Events
	}
	l.containerGC, err = containergc.New(cfg)
	return err
}

// isUpToDate reports whether all pods and their state in the runtime are known.
func (l *Loop) isUpToDate() bool {
	return l.cfg.Pods.Ready() == nil && l.cfg.Pods.RuntimeHealth() == nil
}

// snapshot returns the sandboxes and containers that the pod loop has observed. This agent may
// remove only these sandboxes and containers.
func (l *Loop) snapshot(context.Context) (s containergc.Snapshot, _ error) {
	for _, pod := range l.cfg.Pods.Observed() {
		for _, sandbox := range pod.Sandboxes {
			s.Sandboxes = append(s.Sandboxes, containergc.SandboxFromStatus(sandbox))
		}
		for _, c := range pod.Containers {
			s.Containers = append(s.Containers, containergc.ContainerFromStatus(c, pod.SandboxOf[c.GetId()]))
		}
	}
	return s, nil
}

// podState implements [containergc.PodState] with the pod loop.
type podState struct{ pods Pods }

// ShouldPodContentBeRemoved reports whether the containers of a pod may be removed.
func (s podState) ShouldPodContentBeRemoved(uid types.UID) bool { return s.pods.ContentRemovable(uid) }

// ShouldPodRuntimeBeRemoved reports whether no container of a pod runs or will run. It returns
// false for a pod that the pod loop removes itself.
func (s podState) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return s.pods.RuntimeRemovable(uid) }

// preStop runs the preStop hook of a container in an unknown state.
func (l *Loop) preStop(ctx context.Context, c containergc.Container) error {
	hook := &corev1.LifecycleHandler{}
	if err := json.Unmarshal([]byte(c.PreStop), hook); err != nil {
		return fmt.Errorf("decode the preStop hook of container %s: %w", c.Name, err)
	}
	l.cfg.Pods.RunHook(ctx, lifecycle.Hook{
		Kind:        lifecycle.PreStop,
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: c.PodUID, Namespace: c.Namespace, Name: c.Pod}},
		Container:   &corev1.Container{Name: c.Name, Lifecycle: &corev1.Lifecycle{PreStop: hook}},
		ContainerID: c.ID,
		PodIP:       l.addressOf(c.PodUID),
		Deadline:    lifecycle.NewDeadline(l.cfg.Clock, l.cfg.Clock.Now().Add(c.StopGrace)),
	})
	return nil
}

// addressOf returns the IP address of a pod. If the runtime reports no address, as for a pod that
// uses the host network, it returns the address of the node.
func (l *Loop) addressOf(uid types.UID) string {
	ip := ""
	if addresses := l.machine.now().Addresses; len(addresses) > 0 {
		ip = addresses[0].String()
	}
	if s := l.observed(uid); s != nil && len(s.Sandboxes) > 0 {
		return cmp.Or(s.Sandboxes[0].GetNetwork().GetIp(), ip)
	}
	return ip
}

// observed returns the state of a pod in the runtime, or nil if the pod loop has not observed
// the pod.
func (l *Loop) observed(uid types.UID) *podcache.Status {
	for _, s := range l.cfg.Pods.Observed() {
		if s.UID == uid {
			return s
		}
	}
	return nil
}
