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

// Status is the state of one pod in the runtime. A Status in a [Cache] is
// shared by all its readers and never changes: a writer stores a new one,
// and readers must not modify it or the messages it points to.
type Status struct {
	// UID, Name and Namespace identify the pod. Name and Namespace are empty if
	// the runtime has no sandbox or container of it.
	UID             types.UID
	Name, Namespace string
	// IPs are the pod's addresses, the primary one first. They remain after the
	// sandbox has stopped, until the pod is deleted from the cache.
	IPs []string
	// Sandboxes are the pod's sandboxes, newest first (see [SortSandboxes]).
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers are the containers of all sandboxes, newest first (see
	// [SortContainers]). They have the kubelet's label io.kubernetes.container.name, their
	// name in the pod's spec, and its annotation io.kubernetes.container.restartCount.
	Containers []*runtimeapi.ContainerStatus
	// SandboxOf maps a container's ID to its sandbox's ID. It comes from the list of
	// containers, because a CRI container status does not contain it.
	SandboxOf map[string]string
	// Stale means that the last inspection failed or timed out. The other fields are then
	// those of the last successful one.
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
		if id, known := s.SandboxOf[c.GetId()]; known && id == s.Sandboxes[0].GetId() && ContainerName(c) == name {
			return c
		}
	}
	return nil
}

// Running reports whether a part of the pod may still run: a container that is
// running or in an unknown state, or a ready sandbox.
func (s *Status) Running() bool {
	return slices.ContainsFunc(s.Sandboxes, func(b *runtimeapi.PodSandboxStatus) bool {
		return b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}) || slices.ContainsFunc(s.Containers, func(c *runtimeapi.ContainerStatus) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING ||
			c.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN
	})
}

// ContainerName returns the name of c in its pod's spec, from its label; empty if the label
// is missing.
func ContainerName(c *runtimeapi.ContainerStatus) string {
	return c.GetLabels()[crilabels.ContainerName]
}

// RestartCount returns how often the container was restarted before c, from c's annotation;
// 0 if the annotation is missing or not a number.
func RestartCount(c *runtimeapi.ContainerStatus) int {
	return crilabels.Restarts(c.GetAnnotations())
}

// StartInterrupted reports whether the start of c was interrupted because the call that started
// it was cancelled, for example because the agent was killed. Containerd then reports an
// exited container with exit code 128, like one whose start failed. But no process of it
// ran, and the next attempt may succeed. If a caller's timeout is shorter than the start
// takes, each attempt is interrupted, so retries must back off.
//
// During about one millisecond of a start, containerd 2.4 loses the task that it has
// created if the call is cancelled. Until containerd is restarted, such a container cannot
// be removed or replaced. StartInterrupted returns false for it, so it counts as failed.
func StartInterrupted(c *runtimeapi.ContainerStatus) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && c.GetStartedAt() == 0 && c.GetReason() == startError &&
		isInterruption(c.GetMessage())
}

func isInterruption(message string) bool {
	message = strings.TrimSuffix(message, ": unknown")                        // the error code, with containerd 1.7 and older
	message = strings.TrimSuffix(strings.TrimRight(message, ": "), ": <nil>") // the empty output of a command
	cancelled := func(cause string) bool { return strings.HasSuffix(message, cause) }
	return slices.ContainsFunc([]string{context.Canceled.Error(), context.DeadlineExceeded.Error(), runcKilled, shimKilled}, cancelled) &&
		!strings.Contains(message, taskLost)
}

const (
	// startError is containerd's reason of a container whose start failed.
	startError = "StartError"
	// runcKilled and shimKilled are containerd's messages if runc, or the command that
	// starts a shim, was running when the call was cancelled, and was therefore killed.
	runcKilled = "did not terminate successfully: exit status 137"
	shimKilled = "start failed: : signal: killed"
	// taskLost is the action in containerd's message if it has lost the task.
	taskLost = "failed to get task pid"
)

// SortSandboxes sorts sandboxes in place, the newest first: by attempt, then creation time,
// then ID. Attempts come first because clocks may go backwards (kubernetes#130551).
func SortSandboxes(s []*runtimeapi.PodSandboxStatus) {
	slices.SortFunc(s, func(a, b *runtimeapi.PodSandboxStatus) int {
		return cmp.Or(
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(b.GetId(), a.GetId()))
	})
}

// SortContainers sorts containers in place, the newest first: by restart count, then
// creation time, then ID. Restart counts come first because clocks may go backwards
// (kubernetes#134153).
func SortContainers(c []*runtimeapi.ContainerStatus) {
	slices.SortFunc(c, func(a, b *runtimeapi.ContainerStatus) int {
		return cmp.Or(
			cmp.Compare(RestartCount(b), RestartCount(a)),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()),
			cmp.Compare(b.GetId(), a.GetId()))
	})
}
