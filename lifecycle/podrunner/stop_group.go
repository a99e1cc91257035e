package podrunner

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// stopGroup stops a set of containers within one deadline. It runs the preStop
// hooks and stops the containers in the order of [lifecycle.PlanTermination].
type stopGroup struct {
	*Runner
	pod      *corev1.Pod
	deadline *lifecycle.Deadline
	ips      []string
	names    []string            // in the order in which they were added
	targets  map[string][]target // by container name; usually one instance
}

// target is an instance of a container to stop.
type target struct {
	id string
	// running is false if the instance was created but not started, or if its
	// state is unknown. The preStop hook is not run in such an instance.
	running bool
}

func (r *Runner) newStopGroup(pod *corev1.Pod, deadline *lifecycle.Deadline, ips []string) *stopGroup {
	return &stopGroup{Runner: r, pod: pod, deadline: deadline, ips: ips, targets: map[string][]target{}}
}

func (e *stopGroup) add(name string, t target) {
	if e.targets[name] == nil {
		e.names = append(e.names, name)
	}
	e.targets[name] = append(e.targets[name], t)
}

// stopAll stops all targets in the order of lifecycle.PlanTermination.
func (e *stopGroup) stopAll(ctx context.Context) error {
	var states []lifecycle.ContainerState
	for _, name := range e.names {
		hooked := e.hookTarget(name)
		states = append(states, lifecycle.ContainerState{
			Name: name, Running: true, PreStopped: hooked == "" || e.hookDone(e.pod.UID, hooked),
		})
	}
	t := lifecycle.Termination{
		Plan:     lifecycle.PlanTermination(e.pod, states, e.deadline.Left()),
		Deadline: e.deadline,
		Stop:     e.stop,
		Exited:   func(name string) <-chan struct{} { return e.exited(e.hookTarget(name)) },
	}
	if e.cfg.Hooks != nil {
		t.PreStop = func(hook context.Context, name string, _ *corev1.LifecycleHandler) { e.preStop(ctx, hook, name) }
	}
	return lifecycle.Terminate(ctx, t)
}

// hookTarget returns the ID of the instance in which the preStop hook runs: the
// newest running instance. It returns "" if no instance runs.
func (e *stopGroup) hookTarget(name string) string {
	for _, t := range e.targets[name] {
		if t.running {
			return t.id
		}
	}
	return ""
}

func (e *stopGroup) stop(ctx context.Context, name string, grace time.Duration) error {
	return inParallel(e.targets[name], func(t target) error { return e.stopContainer(ctx, name, t.id, grace) })
}

// preStop runs a preStop hook and records that the hook has ended. If the sync
// was cancelled before the deadline, preStop does not record this, and the next
// sync runs the hook again.
func (e *stopGroup) preStop(syncCtx, ctx context.Context, name string) {
	id := e.hookTarget(name)
	e.cfg.Hooks.Run(ctx, lifecycle.Hook{
		Kind: lifecycle.PreStop, Pod: e.pod, Container: podspec.Container(&e.pod.Spec, name), ContainerID: id,
		PodIP: hookIP(e.pod, e.ips, e.node()), Deadline: e.deadline, Exited: e.exited(id),
	})
	if syncCtx.Err() == nil || errors.Is(context.Cause(ctx), lifecycle.ErrDeadline) {
		e.setHookDone(syncCtx, e.pod.UID, id)
	}
}
