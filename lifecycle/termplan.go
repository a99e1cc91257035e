package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ContainerState is what [PlanTermination] must know of a container: whether
// there is something to stop.
type ContainerState struct {
	// Name is the container's name in the spec, or whatever the runtime has that
	// the spec does not.
	Name string
	// Running is false for one that was only created, and for one that ended.
	Running bool
	// PreStopped says that its preStop hook has run already, before a restart of
	// the agent for example. It is not run twice.
	PreStopped bool
}

// TerminationStep is one container's end.
type TerminationStep struct {
	// Container is the name of the container that is stopped.
	Container string
	// PreStop runs first, at once, however long it takes until the container's
	// turn; nil if there is none or no time for it. It is shared with the spec.
	PreStop *corev1.LifecycleHandler
	// After are the containers that must have ended before this one is stopped.
	// They are all in the plan.
	After []string
	// Stage is 0 for what is stopped at once, and otherwise one more than the
	// highest of After.
	Stage int
}

// TerminationPlan says in which order the containers of a pod are stopped. Steps
// are sorted by stage, and within one as in the spec.
type TerminationPlan struct{ Steps []TerminationStep }

// PlanTermination plans the end of the pod's running containers with the given
// time left until its deadline (KEP-753). Regular containers are stopped at once,
// all together, and so are init containers, ephemeral ones, and what the spec
// does not name. A sidecar waits for the regular and init containers and for the
// sidecars that come after it in the spec. PreStop hooks, those of sidecars too,
// begin at once. When no time is left there are no hooks and there is no order.
// It is pure; states may be in any order, and pod may be nil for one that only
// the runtime knows.
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
	for _, s := range states { // what is left is in no spec
		p.add(s.Name, nil, nil)
	}
	slices.SortStableFunc(p.steps, func(a, b TerminationStep) int { return a.Stage - b.Stage })
	return TerminationPlan{Steps: p.steps}
}

type planner struct {
	running map[string]ContainerState // and not in a step yet
	left    time.Duration
	steps   []TerminationStep
}

func (p *planner) spec(spec *corev1.PodSpec) {
	var first, later []string // whom sidecars serve, and sidecars further down
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

// add plans a container, if it runs, and returns the names with its own.
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

// String prints the plan, a line for each stage.
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
