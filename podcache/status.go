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

// Status is the state of one pod in the runtime. A Status in a [Cache] is shared by all its
// readers and never changes: a writer stores a new Status, and readers must not modify the
// Status or the messages that it points to.
type Status struct {
	// UID, Name and Namespace identify the pod. Name and Namespace are empty if the runtime has no
	// sandbox or container of the pod.
	UID             types.UID
	Name, Namespace string
	// IPs are the pod's addresses, the primary address first. They stay set after the sandbox has
	// stopped, until another sandbox is ready or the pod is deleted from the cache.
	IPs []string
	// Sandboxes are the pod's sandboxes, newest first (see [SortSandboxes]).
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers are the containers of all sandboxes, newest first (see [SortContainers]). Each
	// has the kubelet's label io.kubernetes.container.name, which is the container's name in the
	// pod's spec, and the kubelet's annotation io.kubernetes.container.restartCount.
	Containers []*runtimeapi.ContainerStatus
	// SandboxOf maps the ID of each container to the ID of its sandbox. The sandbox IDs are from
	// the runtime's list of containers, because a CRI container status does not contain them.
	SandboxOf map[string]string
	// Stale means that the last inspection failed or timed out. The other fields are then from the
	// last successful inspection.
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

// Active returns the newest container of the given name in the newest sandbox, whether or not
// the sandbox is ready. It returns nil if the container does not exist.
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

// ContainerName returns the name of c in the pod's spec, from the label of c. It returns "" if
// the label is missing.
func ContainerName(c *runtimeapi.ContainerStatus) string {
	return c.GetLabels()[crilabels.ContainerName]
}

// RestartCount returns the number of restarts before c was created, from the annotation of c.
// It returns 0 if the annotation is missing or not a number.
func RestartCount(c *runtimeapi.ContainerStatus) int {
	return crilabels.Restarts(c.GetAnnotations())
}

// StartInterrupted reports whether the start of c was interrupted because the call
// StartContainer was cancelled, for example because the agent was killed. Containerd then
// reports that c exited with exit code 128, as after a failed start. But no process of c ran,
// and the next attempt may succeed. If the timeout of the calls is shorter than a start, each
// attempt is interrupted, so retries must back off.
//
// A start has a critical period of about one millisecond: if the call is cancelled in this
// period, containerd 2.4 loses the task that it has created. Until containerd is restarted,
// such a container cannot be removed or replaced. StartInterrupted returns false for such a
// container, so the container counts as failed.
func StartInterrupted(c *runtimeapi.ContainerStatus) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && c.GetStartedAt() == 0 && c.GetReason() == startError &&
		isInterruption(c.GetMessage())
}

func isInterruption(message string) bool {
	message = strings.TrimSuffix(message, ": unknown")                        // the error code, which containerd 1.7 and older append
	message = strings.TrimSuffix(strings.TrimRight(message, ": "), ": <nil>") // the empty output of a command
	cancelled := func(cause string) bool { return strings.HasSuffix(message, cause) }
	return slices.ContainsFunc([]string{context.Canceled.Error(), context.DeadlineExceeded.Error(), runcKilled, shimKilled}, cancelled) &&
		!strings.Contains(message, taskLost)
}

const (
	// startError is the reason that containerd reports for a container whose start failed.
	startError = "StartError"
	// runcKilled and shimKilled are the ends of containerd's messages if it killed runc, or the
	// command that starts a shim, because the call was cancelled.
	runcKilled = "did not terminate successfully: exit status 137"
	shimKilled = "start failed: : signal: killed"
	// taskLost is a part of containerd's message if containerd has lost the task.
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
