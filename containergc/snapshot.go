package containergc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// Snapshot is the complete list of sandboxes and containers in the runtime at one time. A
// snapshot may be old, because ids are never reused and dead containers never run again. A
// later pass handles the objects that the snapshot does not contain.
type Snapshot struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Container has the facts about a container that decisions need.
type Container struct {
	// ID is the container's id, SandboxID the id of its sandbox.
	ID, SandboxID string
	// PodUID, Namespace and Pod identify the container's pod. If PodUID is empty, the
	// container belongs to the pod of its sandbox. Name is the container's name in the
	// pod.
	PodUID               types.UID
	Namespace, Pod, Name string
	// Attempt counts the containers with this name in the pod, from 0.
	Attempt uint32
	// State is the CRI state. A state that this build does not know counts as running.
	State runtimeapi.ContainerState
	// CreatedAt is when the container was created, FinishedAt when it exited. FinishedAt
	// is zero if the exit time is unknown; the Manager then requests the exit time from
	// the runtime if the policy needs it.
	CreatedAt, FinishedAt time.Time
	// StopGrace is the grace period for stopping the container if its state is unknown:
	// the grace period of the pod's deletion, or else of the pod's spec. The Manager uses
	// at least two seconds.
	StopGrace time.Duration
	// PreStop is the container's preStop hook, a LifecycleHandler of core/v1 as JSON. It
	// is empty if the container has no preStop hook.
	PreStop string
	// Labels are the container's CRI labels, for [Config].Owned.
	Labels map[string]string
}

// Sandbox has the facts about a sandbox that decisions need.
type Sandbox struct {
	// ID is the sandbox's id.
	ID string
	// PodUID, Namespace and Pod identify its pod.
	PodUID         types.UID
	Namespace, Pod string
	// Attempt counts the pod's sandboxes, from 0.
	Attempt uint32
	// Ready reports whether the sandbox is ready. A ready sandbox is never removed.
	Ready bool
	// CreatedAt is when the sandbox was created.
	CreatedAt time.Time
	// Labels are the sandbox's CRI labels, for [Config].Owned.
	Labels map[string]string
}

// minGracePeriod is the kubelet's minimum grace period.
const minGracePeriod = 2 * time.Second

// ContainerFromList converts an entry of ListContainers.
func ContainerFromList(c *runtimeapi.Container) Container {
	made := containerOf(c.GetLabels(), c.GetAnnotations(), c.GetMetadata())
	made.ID, made.SandboxID, made.State = c.GetId(), c.GetPodSandboxId(), c.GetState()
	made.CreatedAt = timeOf(c.GetCreatedAt())
	return made
}

// ContainerFromStatus converts a container status, for example from package podcache. The caller
// supplies the sandbox's ID, because CRI statuses do not contain it.
func ContainerFromStatus(s *runtimeapi.ContainerStatus, sandboxID string) Container {
	made := containerOf(s.GetLabels(), s.GetAnnotations(), s.GetMetadata())
	made.ID, made.SandboxID, made.State = s.GetId(), sandboxID, s.GetState()
	made.CreatedAt = timeOf(s.GetCreatedAt())
	if s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		made.FinishedAt = timeOf(s.GetFinishedAt())
	}
	return made
}

func containerOf(labels, annotations map[string]string, meta *runtimeapi.ContainerMetadata) Container {
	grace := minGracePeriod
	for _, key := range []string{crilabels.PodDeletionGracePeriod, crilabels.PodTerminationGracePeriod} {
		if s, err := strconv.ParseInt(annotations[key], 10, 32); err == nil {
			grace = time.Duration(s) * time.Second
			break
		}
	}
	return Container{
		PodUID:    crilabels.UID(labels),
		Namespace: labels[crilabels.PodNamespace],
		Pod:       labels[crilabels.PodName],
		Name:      meta.GetName(),
		Attempt:   meta.GetAttempt(),
		StopGrace: grace,
		PreStop:   annotations[crilabels.PreStopHandler],
		Labels:    labels,
	}
}

// SandboxFromList converts an entry of ListPodSandbox.
func SandboxFromList(s *runtimeapi.PodSandbox) Sandbox {
	return sandboxOf(s.GetId(), s.GetMetadata(), s.GetState(), s.GetCreatedAt(), s.GetLabels())
}

// SandboxFromStatus converts a sandbox status, for example from package podcache.
func SandboxFromStatus(s *runtimeapi.PodSandboxStatus) Sandbox {
	return sandboxOf(s.GetId(), s.GetMetadata(), s.GetState(), s.GetCreatedAt(), s.GetLabels())
}

func sandboxOf(id string, meta *runtimeapi.PodSandboxMetadata, state runtimeapi.PodSandboxState, created int64, labels map[string]string) Sandbox {
	return Sandbox{
		ID:        id,
		PodUID:    types.UID(meta.GetUid()),
		Namespace: meta.GetNamespace(),
		Pod:       meta.GetName(),
		Attempt:   meta.GetAttempt(),
		Ready:     state != runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		CreatedAt: timeOf(created),
		Labels:    labels,
	}
}

// timeOf converts Unix nanoseconds. It returns the zero time for 0 or less.
func timeOf(nanos int64) time.Time {
	if nanos <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// list takes a snapshot with the two lists of the runtime. Entries without an ID are
// ignored.
func list(ctx context.Context, rt Runtime) (s Snapshot, err error) {
	// List sandboxes first: a sandbox that is not ready gets no more containers, so that
	// the second list has all its containers.
	sandboxes, err := rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return s, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := rt.ListContainers(ctx, nil)
	if err != nil {
		return s, fmt.Errorf("list containers: %w", err)
	}
	for _, b := range sandboxes {
		if b.GetId() != "" {
			s.Sandboxes = append(s.Sandboxes, SandboxFromList(b))
		}
	}
	for _, c := range containers {
		if c.GetId() != "" {
			s.Containers = append(s.Containers, ContainerFromList(c))
		}
	}
	return s, nil
}
