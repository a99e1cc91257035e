// Package describe converts the facts about a pod to the types of package api. Its functions
// are pure: the caller gathers the facts.
package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/prober"
)

// Facts are the facts about a pod. The functions of this package do not modify them.
type Facts struct {
	// Pod is the pod with its newest status. Required.
	Pod *corev1.Pod
	// Terminating reports whether the pod is being stopped.
	Terminating bool
	// Usage is the resource usage of the pod. Containers has the resource usage of its
	// containers, by name. Optional.
	Usage      *api.Usage
	Containers map[string]api.Usage
	// Probes are the probes of all containers of the pod. Optional.
	Probes []agent.Probe
	// Events are the last events about the pod, newest first. Optional.
	Events []api.Event
}

// Pod returns the pod with its containers: first the init containers, then the regular
// containers, then the ephemeral containers.
func Pod(f Facts) api.Pod {
	p, s := f.Pod, &f.Pod.Status
	out := api.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Phase: s.Phase, State: State(p, f.Terminating), Message: s.Message, IP: s.PodIP,
		Started: timeOf(s.StartTime), Usage: f.Usage, Events: f.Events, Containers: []api.Container{},
	}
	if out.Phase == "" {
		out.Phase = corev1.PodPending // the pod has no status yet
	}
	list := func(specs []corev1.Container, statuses []corev1.ContainerStatus, kindOf func(*corev1.Container) string) {
		for i := range specs {
			c := container(&specs[i], statusOf(statuses, specs[i].Name), kindOf(&specs[i]))
			if u, ok := f.Containers[c.Name]; ok {
				c.Usage = &u
			}
			for _, p := range f.Probes {
				if p.Container == c.Name {
					c.Probes = append(c.Probes, probe(p))
				}
			}
			if c.Ready && (c.Kind == "main" || c.Kind == "sidecar") {
				out.Ready++
			}
			out.Restarts += c.Restarts
			out.Containers = append(out.Containers, c)
		}
	}
	list(p.Spec.InitContainers, s.InitContainerStatuses, func(c *corev1.Container) string {
		if podspec.IsSidecar(c) {
			return "sidecar"
		}
		return "init"
	})
	list(p.Spec.Containers, s.ContainerStatuses, func(*corev1.Container) string { return "main" })
	list(ephemeral(p), s.EphemeralContainerStatuses, func(*corev1.Container) string { return "ephemeral" })
	return out
}

// ephemeral returns the pod's ephemeral containers in the type of regular containers.
func ephemeral(p *corev1.Pod) (out []corev1.Container) {
	for i := range p.Spec.EphemeralContainers {
		out = append(out, corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

func container(spec *corev1.Container, s *corev1.ContainerStatus, kind string) api.Container {
	out := api.Container{Name: spec.Name, Kind: kind, Image: spec.Image, State: "waiting"}
	if s == nil {
		return out
	}
	out.Ready, out.Restarts = s.Ready, s.RestartCount
	switch state := s.State; {
	case state.Running != nil:
		out.State, out.Since = "running", timeOf(&state.Running.StartedAt)
	case state.Terminated != nil:
		out.State, out.Since = cmp.Or(state.Terminated.Reason, "terminated"), timeOf(&state.Terminated.FinishedAt)
		out.ExitCode = &state.Terminated.ExitCode
	case state.Waiting != nil:
		out.State = cmp.Or(state.Waiting.Reason, "waiting")
		if last := s.LastTerminationState.Terminated; last != nil {
			out.Since, out.ExitCode = timeOf(&last.FinishedAt), &last.ExitCode
		}
	}
	return out
}

func probe(p agent.Probe) api.Probe {
	out := api.Probe{Kind: strings.ToLower(p.Kind.String()), Result: "unknown"}
	switch p.Result {
	case prober.Success:
		out.Result = "success"
	case prober.Failure:
		out.Result = "failure"
	case prober.Unknown, prober.NoProbe:
	}
	if n := len(p.Runs); n > 0 {
		last := p.Runs[n-1]
		out.Time, out.Output = &last.At, last.Output
		out.DurationMS = float64(last.Duration) / float64(time.Millisecond)
	}
	return out
}

// State returns the status that kubectl shows for a pod, such as CrashLoopBackOff or Init:0/1.
func State(p *corev1.Pod, terminating bool) string {
	s := &p.Status
	state := cmp.Or(s.Reason, string(s.Phase), string(corev1.PodPending))
	if waits, initializing := initState(p); initializing {
		state = waits
	} else {
		state = mainState(s, state)
	}
	if terminating && !podspec.IsTerminal(s.Phase) || p.DeletionTimestamp != nil {
		return "Terminating"
	}
	if podspec.IsTerminal(s.Phase) && s.Reason != "" {
		return s.Reason // such as Evicted, which explains more than the exit of the containers
	}
	return state
}

// initState returns the progress of the pod's initialization. It returns false if the
// initialization is complete, if no container has a status yet, or if the pod has ended with a
// reason.
func initState(p *corev1.Pod) (string, bool) {
	statuses := p.Status.InitContainerStatuses
	if len(p.Status.ContainerStatuses) == 0 && len(statuses) == 0 || podspec.IsTerminal(p.Status.Phase) && p.Status.Reason != "" {
		return "", false
	}
	for i := range p.Spec.InitContainers {
		spec := &p.Spec.InitContainers[i]
		c := statusOf(statuses, spec.Name)
		switch {
		case c == nil:
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 && !podspec.IsSidecar(spec):
			continue
		case podspec.IsSidecar(spec) && c.Started != nil && *c.Started:
			continue
		case c.State.Terminated != nil:
			return "Init:" + ended(c.State.Terminated), true
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			return "Init:" + c.State.Waiting.Reason, true
		}
		return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers)), true
	}
	return "", false
}

// mainState returns the reason of the first container that is waiting or terminated, or the given
// state if all containers run. If that reason is Completed and another container is ready,
// mainState returns Running for a ready pod, and otherwise NotReady.
func mainState(s *corev1.PodStatus, state string) string {
	running := false
	for i := len(s.ContainerStatuses) - 1; i >= 0; i-- {
		c := &s.ContainerStatuses[i]
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = ended(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
		}
	}
	if state == "Completed" && running {
		state = "NotReady"
		if s := conditionOf(s, corev1.PodReady); s != nil && s.Status == corev1.ConditionTrue {
			state = "Running"
		}
	}
	return state
}

// ended returns the reason, the signal or the exit code of a terminated container.
func ended(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func conditionOf(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &t.Time
}

// Containers returns the names of all containers of a pod.
func Containers(p *corev1.Pod) (names []string) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers, ephemeral(p)} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// ContainerStatus returns the status of the container with this name. It returns nil if the
// container has no status yet.
func ContainerStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	s := &p.Status
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		if c := statusOf(list, name); c != nil {
			return c
		}
	}
	return nil
}
