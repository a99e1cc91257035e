package podrunner

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Actions is what must be done to a pod, in the order of the fields, and why.
// The zero value says that nothing is to be done.
type Actions struct {
	// StopPod stops every container and sandbox of the pod first. Reason is
	// empty when that is not needed.
	StopPod Reason
	// Kill are the containers to stop while the pod goes on.
	Kill []Kill
	// RestartAll is set when every container is removed so that the pod begins
	// anew in its sandbox. Then Kill and Remove must succeed in their order, for
	// the last of Remove is what tells that the rest is to go.
	RestartAll *RestartAll
	// Restarting is set until that is done: the next plan needs it, because the
	// container that asked for it may be removed from the runtime at any time.
	Restarting bool
	// Remove are containers and sandboxes that nothing needs any more, dead ones
	// but for those that Kill names.
	Remove []Remove
	// Pin are the CPUs and memory nodes to change while containers run.
	Pin []Pin
	// Update are the resources to change while containers run, in this order: the
	// pod never has less than its containers may take.
	Update []Resize
	// NoUpdate is why resources stay as they are although they ought to change.
	NoUpdate Reason
	// CreateSandbox makes a new sandbox with SandboxAttempt. Reason is empty
	// when the present one serves.
	CreateSandbox  Reason
	SandboxAttempt uint32
	// Start are the containers to start, in this order.
	Start []Start
	// Waiting says for each container that is not started now, although it is to
	// run, why; as the pod's status shows it.
	Waiting map[string]corev1.ContainerStateWaiting
	// RetryAt is when the first of those that back off may start, a sandbox among
	// them; zero if none does.
	RetryAt time.Time
}

// Reason is why something is to be done, as a sentence without a full stop. An
// empty Reason says that it is not to be done.
type Reason string

// ContainerKind is what a container is to its pod.
type ContainerKind uint8

// Kinds of containers.
const (
	// Regular is one of spec.containers.
	Regular ContainerKind = iota
	// Init is one of spec.initContainers that is to end before the next begins.
	Init
	// Sidecar is one of spec.initContainers that goes on: its restart policy is
	// Always (KEP-753).
	Sidecar
	// Ephemeral is one of spec.ephemeralContainers.
	Ephemeral
)

// String names the kind in words.
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

// Cause is why a container is stopped, for those who treat causes differently:
// a probe may have a grace period of its own.
type Cause uint8

// Causes of a [Kill].
const (
	// CauseNone is that of no kill.
	CauseNone Cause = iota
	// CauseStray is a container that the pod ought not to have.
	CauseStray
	// CauseChanged is a changed definition.
	CauseChanged
	// CauseLiveness is a failed liveness probe.
	CauseLiveness
	// CauseStartup is a failed startup probe.
	CauseStartup
	// CauseUnknownState is a state that the runtime does not know.
	CauseUnknownState
	// CauseResize is a resize that needs a restart.
	CauseResize
	// CauseRestartAll is that all containers are restarted: without hooks and
	// without grace, as KEP-5532 has it.
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
	// Sandbox says that ID names a sandbox.
	Sandbox bool
	Reason  Reason
}

// Start is a container to create and start.
type Start struct {
	// Name is the container's name in the spec.
	Name string
	Kind ContainerKind
	// Attempt is the restart count that the container is made with.
	Attempt uint32
	// ID is set when the container was created already and only has to start.
	ID string
	// After is when its predecessor ended; zero if it had none, or one whose end
	// nobody saw. In place of one that is killed for its probes it is when the one
	// before that ended. A start that was broken off is such an end. Starting it counts against the restart back-off from then.
	After  time.Time
	Reason Reason
}

// Empty says that there is nothing to do now. Containers may still wait.
func (a Actions) Empty() bool {
	return a.StopPod == "" && a.CreateSandbox == "" && len(a.Kill) == 0 && len(a.Remove) == 0 && len(a.Pin) == 0 && len(a.Update) == 0 && len(a.Start) == 0
}

// String explains the actions, one a line, in the order in which they are done.
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
		line("wait with container %s: %s: %s", name, a.Waiting[name].Reason, a.Waiting[name].Message)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}
