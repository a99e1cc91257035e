package podrunner

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ending is containers on their way out: preStop hook, waiting for one another and
// stop, all within one deadline.
type ending struct {
	*Runner
	pod      *corev1.Pod
	deadline *lifecycle.Deadline
	ips      []string
	names    []string            // in the order in which they were added
	targets  map[string][]target // by name; more than one only where something is wrong
}

// target is an instance of a container that is to end.
type target struct {
	id string
	// running is false for one that was only created, and for one of which the
	// runtime does not know what it does: there is no hook for it.
	running bool
}

func (r *Runner) ending(pod *corev1.Pod, deadline *lifecycle.Deadline, ips []string) *ending {
	return &ending{Runner: r, pod: pod, deadline: deadline, ips: ips, targets: map[string][]target{}}
}

func (e *ending) add(name string, t target) {
	if e.targets[name] == nil {
		e.names = append(e.names, name)
	}
	e.targets[name] = append(e.targets[name], t)
}

// end ends them all, in the order of their pod.
func (e *ending) end(ctx context.Context) error {
	var states []lifecycle.ContainerState
	for _, name := range e.names {
		hooked := e.hooked(name)
		states = append(states, lifecycle.ContainerState{
			Name: name, Running: true, PreStopped: hooked == "" || e.hookDone(e.pod.UID, hooked),
		})
	}
	t := lifecycle.Termination{
		Plan:     lifecycle.PlanTermination(e.pod, states, e.deadline.Left()),
		Deadline: e.deadline,
		Stop:     e.stop,
		Exited:   func(name string) <-chan struct{} { return e.exited(e.hooked(name)) },
	}
	if e.cfg.Hooks != nil {
		t.PreStop = func(hook context.Context, name string, _ *corev1.LifecycleHandler) { e.preStop(ctx, hook, name) }
	}
	return lifecycle.Terminate(ctx, t)
}

// hooked is the instance in which the name's hook runs: the newest that runs.
func (e *ending) hooked(name string) string {
	for _, t := range e.targets[name] {
		if t.running {
			return t.id
		}
	}
	return ""
}

func (e *ending) stop(ctx context.Context, name string, grace time.Duration) error {
	return inParallel(e.targets[name], func(t target) error { return e.stopContainer(ctx, name, t.id, grace) })
}

// preStop runs a hook. The turn's context tells whether it was called off, so that
// it runs again in the next turn, or has ended.
func (e *ending) preStop(turn, ctx context.Context, name string) {
	id := e.hooked(name)
	e.cfg.Hooks.Run(ctx, lifecycle.Hook{
		Kind: lifecycle.PreStop, Pod: e.pod, Container: podspec.Container(&e.pod.Spec, name), ContainerID: id,
		PodIP: hookIP(e.pod, e.ips, e.node()), Deadline: e.deadline, Exited: e.exited(id),
	})
	if turn.Err() == nil || errors.Is(context.Cause(ctx), lifecycle.ErrDeadline) {
		e.setHookDone(turn, e.pod.UID, id)
	}
}
