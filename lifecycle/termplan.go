package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ContainerState describes a container for [PlanTermination].
type ContainerState struct {
	// Name is the container's name in the spec, or its name in the runtime if
	// it is not in the spec.
	Name string
	// Running reports whether the container runs. It is false for a container
	// that was created but not started, and for a container that has ended.
	Running bool
	// PreStopped reports whether the container's preStop hook has already run,
	// for example before a restart of the agent. The hook is then not run
	// again.
	PreStopped bool
}

// TerminationStep describes how one container is stopped.
type TerminationStep struct {
	// Container is the name of the container that is stopped.
	Container string
	// PreStop is the hook that is run before the container is stopped. The
	// hooks of all stages are started at the beginning of the termination.
	// PreStop is nil if the container has no hook to run or if no time is left.
	// It points into the pod's spec.
	PreStop *corev1.LifecycleHandler
	// After are the names of the containers that must have ended before this
	// container is stopped. The plan has a step for each of them.
	After []string
	// Stage is 0 if the container waits for no other container. Otherwise Stage
	// is one more than the highest stage of the containers in After.
	Stage int
}

// TerminationPlan is the order in which the containers of a pod are stopped.
// Steps are sorted by stage.
type TerminationPlan struct{ Steps []TerminationStep }

// PlanTermination plans how the pod's running containers are stopped (KEP-753).
// left is the time until the deadline. Regular containers, init containers that
// are not sidecars, ephemeral containers and containers that are not in the
// spec do not wait for other containers. A sidecar waits for all regular
// containers, for all init containers that are not sidecars, and for those
// sidecars that come after it in the spec. All preStop hooks, also those of
// sidecars, are started at the beginning of the termination. If no time is
// left, hooks are not run, and no container waits for another. PlanTermination
// is pure. The states may be in any order. The pod is nil if only the runtime
// knows it.
func PlanTermination(pod *corev1.Pod, states []ContainerState, left time.Duration) TerminationPlan {
	running := map[string]ContainerState{}
	for _, s := range states {
		if s.Running {
			running[s.Name] = s
		}
	}
	p := planner{running: running, left: left}
	if pod != nil {
		p.spec(&pod.Spec)
	}
	for _, s := range states { // add ignores containers that have a step already
		p.add(s.Name, nil, nil)
	}
	slices.SortStableFunc(p.steps, func(a, b TerminationStep) int { return a.Stage - b.Stage })
	return TerminationPlan{Steps: p.steps}
}

type planner struct {
	running map[string]ContainerState // running containers without a step
	left    time.Duration
	steps   []TerminationStep
}

func (p *planner) spec(spec *corev1.PodSpec) {
	var first, later []string // containers that all sidecars wait for, and the later sidecars
	for i := range spec.Containers {
		c := &spec.Containers[i]
		first = p.add(c.Name, c.Lifecycle, nil, first...)
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; !podspec.IsSidecar(c) {
			first = p.add(c.Name, nil, nil, first...)
		}
	}
	for _, c := range slices.Backward(spec.InitContainers) {
		if podspec.IsSidecar(&c) {
			later = p.add(c.Name, c.Lifecycle, append(slices.Clone(first), later...), later...)
		}
	}
}

// add adds a step for a container that runs and has no step yet, and returns
// names with the container's name appended. It returns names unchanged for
// other containers.
func (p *planner) add(name string, lc *corev1.Lifecycle, after []string, names ...string) []string {
	state, ok := p.running[name]
	if !ok {
		return names
	}
	delete(p.running, name)
	step := TerminationStep{Container: name}
	if p.left > 0 {
		step.After = after
		if lc != nil && !state.PreStopped {
			step.PreStop = lc.PreStop
		}
	}
	for _, s := range p.steps {
		if slices.Contains(step.After, s.Container) {
			step.Stage = max(step.Stage, s.Stage+1)
		}
	}
	p.steps = append(p.steps, step)
	return append(names, name)
}

// String returns the plan as text, one line for each stage.
func (p TerminationPlan) String() string {
	var b strings.Builder
	stage := -1
	for _, s := range p.Steps {
		sep := ", "
		if s.Stage != stage {
			stage = s.Stage
			sep = fmt.Sprintf("stage %d: ", stage)
			if b.Len() > 0 {
				sep = "\n" + sep
			}
		}
		b.WriteString(sep + s.Container)
		if s.PreStop != nil {
			b.WriteString(" (preStop)")
		}
	}
	return b.String()
}
