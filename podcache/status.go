package podcache

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// Status is what the runtime says about one pod. A Status in a [Cache] is
// shared by all its readers and never changes: whoever writes makes a new one,
// and readers must not modify it or the messages it points to.
type Status struct {
	// UID, Name and Namespace name the pod. Name and Namespace are empty when
	// the runtime shows nothing of it.
	UID             types.UID
	Name, Namespace string
	// IPs are the pod's addresses, the primary one first. They stay after the
	// sandbox has stopped, until the pod is forgotten.
	IPs []string
	// Sandboxes are the pod's sandboxes, newest first (see [SortSandboxes]).
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers are the containers of all sandboxes, newest first (see
	// [SortContainers]). They have the kubelet's label io.kubernetes.container.name, their
	// name in the pod's spec, and its annotation io.kubernetes.container.restartCount.
	Containers []*runtimeapi.ContainerStatus
	// SandboxOf maps a container's id to its sandbox's id. A CRI container status
	// does not say it, the list of containers does.
	SandboxOf map[string]string
	// Stale says that the last inspection failed or timed out: the rest is what
	// was known before it.
	Stale bool
}

// Container returns the newest container of the given name, or nil.
func (s *Status) Container(name string) *runtimeapi.ContainerStatus {
	for _, c := range s.Containers {
		if ContainerName(c) == name {
			return c
		}
	}
	return nil
}

// ReadySandbox returns the newest sandbox if it is ready, or nil.
func (s *Status) ReadySandbox() *runtimeapi.PodSandboxStatus {
	if len(s.Sandboxes) > 0 && s.Sandboxes[0].GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		return s.Sandboxes[0]
	}
	return nil
}

// Active returns the newest container of the given name in the newest sandbox, ready
// or not, or nil.
func (s *Status) Active(name string) *runtimeapi.ContainerStatus {
	if len(s.Sandboxes) == 0 {
		return nil
	}
	for _, c := range s.Containers {
		if box, known := s.SandboxOf[c.GetId()]; known && box == s.Sandboxes[0].GetId() && ContainerName(c) == name {
			return c
		}
	}
	return nil
}

// Running says whether anything of the pod may still run: a container that is
// running or in an unknown state, or a ready sandbox.
func (s *Status) Running() bool {
	return slices.ContainsFunc(s.Sandboxes, func(b *runtimeapi.PodSandboxStatus) bool {
		return b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}) || slices.ContainsFunc(s.Containers, func(c *runtimeapi.ContainerStatus) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING ||
			c.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN
	})
}

// ContainerName returns the name that c has in its pod's spec: its label, empty where
// that is missing.
func ContainerName(c *runtimeapi.ContainerStatus) string {
	return c.GetLabels()[crilabels.ContainerName]
}

// RestartCount returns how often c's predecessors in its pod were restarted: its
// annotation, 0 where that is missing or not a number.
func RestartCount(c *runtimeapi.ContainerStatus) int {
	return crilabels.Restarts(c.GetAnnotations())
}

// BrokenOff says whether c ended before it began because whoever had it started went
// away in the middle of it: an agent that was killed, say. Containerd makes a dead
// container of that, exit code 128, which looks like one that failed; but nothing of
// it ran, and it says nothing about the next attempt. A timeout of one's own that is
// shorter than the start takes does the same each time: retries are to back off.
//
// There is a millisecond of a start in which containerd 2.4 forgets the task that it
// has made if the caller goes away. Until containerd is restarted nothing can remove
// such a container, so that none can take its place: it counts as one that failed.
func BrokenOff(c *runtimeapi.ContainerStatus) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && c.GetStartedAt() == 0 && c.GetReason() == startError &&
		brokenOff(c.GetMessage())
}

func brokenOff(message string) bool {
	message = strings.TrimSuffix(message, ": unknown")                        // the kind of error, from containerd 1.7 and before
	message = strings.TrimSuffix(strings.TrimRight(message, ": "), ": <nil>") // what a command wrote, which is nothing
	cancelled := func(cause string) bool { return strings.HasSuffix(message, cause) }
	return slices.ContainsFunc([]string{context.Canceled.Error(), context.DeadlineExceeded.Error(), runcKilled, shimKilled}, cancelled) &&
		!strings.Contains(message, taskForgotten)
}

const (
	// startError is containerd's reason for a container that could not be started.
	startError = "StartError"
	// runcKilled and shimKilled are what containerd says if runc, or the command that
	// starts a shim, was at work when the call was cancelled, which ends it by a signal.
	runcKilled = "did not terminate successfully: exit status 137"
	shimKilled = "start failed: : signal: killed"
	// taskForgotten is what containerd was doing when it forgot a task.
	taskForgotten = "failed to get task pid"
)

// SortSandboxes puts the newest first: by attempt, then creation time, then id.
// Attempts come first because clocks step back (kubernetes#130551).
func SortSandboxes(s []*runtimeapi.PodSandboxStatus) {
	slices.SortFunc(s, func(a, b *runtimeapi.PodSandboxStatus) int {
		return cmp.Or(
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(b.GetId(), a.GetId()))
	})
}

// SortContainers puts the newest first: by restart count, then creation time,
// then id. Counts come first because clocks step back (kubernetes#134153).
func SortContainers(c []*runtimeapi.ContainerStatus) {
	slices.SortFunc(c, func(a, b *runtimeapi.ContainerStatus) int {
		return cmp.Or(
			cmp.Compare(RestartCount(b), RestartCount(a)),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(b.GetId(), a.GetId()))
	})
}
