package podrunner

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Actions are the steps that a pod needs, in the order of the fields, with
// their reasons. The zero value means that nothing needs to be done.
type Actions struct {
	// StopPod is the reason why every container and sandbox of the pod is
	// stopped before all other actions. It is empty if the pod is not stopped.
	StopPod Reason
	// Kill are the containers to stop while the pod keeps running.
	Kill []Kill
	// RestartAll is set if all containers except ephemeral containers are
	// removed so that the pod starts again in its sandbox. All stops in Kill
	// must then succeed before the first removal, and Remove must be carried
	// out in order, up to the first error. The container that requested the
	// restart, if it still exists, is the last entry of Remove. It must be
	// removed last: as long as it exists, a restarted agent recognizes the
	// unfinished restart.
	RestartAll *RestartAll
	// Restarting is true until a restart of all containers is complete. The
	// caller passes it to the next plan as [Input].Restarting, because the
	// container that requested the restart may be removed from the runtime at
	// any time.
	Restarting bool
	// Remove contains the dead containers and sandboxes that are not needed any
	// more. It also contains the containers in Kill that must be removed after
	// they are stopped.
	Remove []Remove
	// Pin are the changes of CPUs and memory nodes of running containers.
	Pin []Pin
	// Update are the resources to change while containers run. They must be
	// changed in this order, so that the limits of the pod are never lower than
	// the sum of its containers' limits.
	Update []Resize
	// NoUpdate is the reason why Update does not contain a change of resources
	// that the spec requires.
	NoUpdate Reason
	// CreateSandbox is the reason why a new sandbox is created. It is empty if
	// no sandbox is created. SandboxAttempt is the attempt of the new sandbox.
	CreateSandbox  Reason
	SandboxAttempt uint32
	// Start are the containers to start, in this order.
	Start []Start
	// Waiting holds the containers that should run but are not started now,
	// with the reason that the pod's status shows.
	Waiting map[string]corev1.ContainerStateWaiting
	// RetryAt is the earliest time at which a back-off of a container or
	// sandbox ends. It is zero if no container or sandbox backs off.
	RetryAt time.Time
}

// Reason is why an action is needed or, in [Actions].NoUpdate, why an action is
// left out. It is a sentence without a full stop. If there is no action to
// explain, the Reason is empty.
type Reason string

// ContainerKind is the role of a container in its pod.
type ContainerKind uint8

// Kinds of containers.
const (
	// Regular is a container of spec.containers.
	Regular ContainerKind = iota
	// Init is a container of spec.initContainers that must end before the next
	// container starts.
	Init
	// Sidecar is a container of spec.initContainers that keeps running: its
	// restart policy is Always (KEP-753).
	Sidecar
	// Ephemeral is a container of spec.ephemeralContainers.
	Ephemeral
)

// String returns the kind in words.
func (k ContainerKind) String() string {
	switch k {
	case Regular:
		return "container"
	case Init:
		return "init container"
	case Sidecar:
		return "sidecar"
	case Ephemeral:
		return "ephemeral container"
	default:
		return fmt.Sprintf("container of kind %d", uint8(k))
	}
}

// kindOf returns the kind of c, which is a regular or an init container.
func kindOf(c *corev1.Container, init bool) ContainerKind {
	switch {
	case !init:
		return Regular
	case podspec.IsSidecar(c):
		return Sidecar
	default:
		return Init
	}
}

// Cause classifies why a container is stopped. The Runner stops the container
// in a way that depends on the cause. For example, a failed probe may have its
// own grace period.
type Cause uint8

// Causes of a [Kill].
const (
	// CauseNone is the zero value: the container is not stopped.
	CauseNone Cause = iota
	// CauseStray means that the container is not in the spec, is not the newest
	// instance of its name, or is not in the current sandbox.
	CauseStray
	// CauseChanged means that the container's definition in the spec has
	// changed.
	CauseChanged
	// CauseLiveness means that the liveness probe failed.
	CauseLiveness
	// CauseStartup means that the startup probe failed.
	CauseStartup
	// CauseUnknownState means that the runtime does not know the container's
	// state.
	CauseUnknownState
	// CauseResize means that a resize requires a restart of the container.
	CauseResize
	// CauseRestartAll means that all containers are restarted, without hooks
	// and without a grace period (KEP-5532).
	CauseRestartAll
)

// probe reports whether c is a failed probe.
func (c Cause) probe() bool { return c == CauseLiveness || c == CauseStartup }

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	Cause    Cause
	// Reason is also the message of the Killing event.
	Reason Reason
}

// Remove is a dead container or sandbox to remove.
type Remove struct {
	ID, Name string
	// Sandbox reports whether ID is the ID of a sandbox.
	Sandbox bool
	Reason  Reason
}

// Start is a container to create and start.
type Start struct {
	// Name is the container's name in the spec.
	Name string
	Kind ContainerKind
	// Attempt is the restart count of the instance to start.
	Attempt uint32
	// ID is set if the container was created before and only has to be started.
	ID string
	// After is when the newest exited instance of the container ended. The
	// restart back-off counts from this time. An instance whose start was
	// interrupted counts as exited. If the plan kills the running instance,
	// After is the end of an earlier instance. After is zero if no instance has
	// exited, or if the newest instance is in the current sandbox and in the
	// state CREATED.
	After  time.Time
	Reason Reason
}

// Empty reports whether the plan has no actions. Containers may still wait.
func (a Actions) Empty() bool {
	return a.StopPod == "" && a.CreateSandbox == "" && len(a.Kill) == 0 && len(a.Remove) == 0 && len(a.Pin) == 0 && len(a.Update) == 0 && len(a.Start) == 0
}

// String explains the actions, one per line, in the order of execution.
func (a Actions) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, printable.Line(fmt.Sprintf(format, args...))) }
	if a.StopPod != "" {
		line("stop pod: %s", a.StopPod)
	}
	for _, k := range a.Kill {
		line("kill container %s (%s): %s", k.Name, k.ID, k.Reason)
	}
	if a.RestartAll != nil {
		line("restart all containers: %s", a.RestartAll.Reason)
	}
	for _, r := range a.Remove {
		kind := "container"
		if r.Sandbox {
			kind = "sandbox"
		}
		line("remove %s %s (%s): %s", kind, r.Name, r.ID, r.Reason)
	}
	for _, p := range a.Pin {
		line("%s", p)
	}
	for _, u := range a.Update {
		line("%s", u)
	}
	if a.NoUpdate != "" {
		line("no resize: %s", a.NoUpdate)
	}
	if a.CreateSandbox != "" {
		line("create sandbox, attempt %d: %s", a.SandboxAttempt, a.CreateSandbox)
	}
	for _, s := range a.Start {
		line("start %s %s, attempt %d: %s", s.Kind, s.Name, s.Attempt, s.Reason)
	}
	for _, name := range sortedKeys(a.Waiting) {
		line("wait to start container %s: %s: %s", name, a.Waiting[name].Reason, a.Waiting[name].Message)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}
