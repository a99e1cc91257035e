package podrunner

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Actions is what must be done to a pod, in the order of the fields, and why.
// The zero value says that nothing is to be done.
type Actions struct {
	// StopPod stops every container and sandbox of the pod first. Reason is
	// empty when that is not needed.
	StopPod Reason
	// Kill are the containers to stop while the pod goes on.
	Kill []Kill
	// Remove are dead containers and sandboxes that nothing needs any more.
	Remove []Remove
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

// Kill is a container to stop.
type Kill struct {
	ID, Name string
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
	// Init says that it is an init container.
	Init bool
	// Attempt is the restart count that the container is made with.
	Attempt uint32
	// ID is set when the container was created already and only has to start.
	ID string
	// After is when its predecessor ended; zero if it had none, or one whose end
	// nobody saw. Starting it counts against the restart back-off from then.
	After  time.Time
	Reason Reason
}

// Empty says that there is nothing to do now. Containers may still wait.
func (a Actions) Empty() bool {
	return a.StopPod == "" && a.CreateSandbox == "" && len(a.Kill) == 0 && len(a.Remove) == 0 && len(a.Start) == 0
}

// String explains the actions, one a line, in the order in which they are done.
func (a Actions) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if a.StopPod != "" {
		line("stop pod: %s", a.StopPod)
	}
	for _, k := range a.Kill {
		line("kill container %s (%s): %s", k.Name, k.ID, k.Reason)
	}
	for _, r := range a.Remove {
		kind := "container"
		if r.Sandbox {
			kind = "sandbox"
		}
		line("remove %s %s (%s): %s", kind, r.Name, r.ID, r.Reason)
	}
	if a.CreateSandbox != "" {
		line("create sandbox, attempt %d: %s", a.SandboxAttempt, a.CreateSandbox)
	}
	for _, s := range a.Start {
		kind := "container"
		if s.Init {
			kind = "init container"
		}
		line("start %s %s, attempt %d: %s", kind, s.Name, s.Attempt, s.Reason)
	}
	for _, name := range sortedKeys(a.Waiting) {
		line("wait with container %s: %s: %s", name, a.Waiting[name].Reason, a.Waiting[name].Message)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}
