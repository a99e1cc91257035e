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

// Snapshot is what there is in the runtime: all of it, as one look showed it. An
// old one does no harm, since ids are never used again and what has ended does
// not come back; what it does not have stays until the next.
type Snapshot struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Container is what decisions need to know about a container.
type Container struct {
	// ID is its id, SandboxID that of its sandbox.
	ID, SandboxID string
	// PodUID, Namespace and Pod name its pod; without a PodUID it is of its
	// sandbox's pod. Name is its name in the pod.
	PodUID               types.UID
	Namespace, Pod, Name string
	// Attempt counts the containers of this name, from 0.
	Attempt uint32
	// State is the CRI's. One that this build does not know counts as running.
	State runtimeapi.ContainerState
	// CreatedAt is when it was made; FinishedAt when it ended, zero if that is not
	// known: the manager asks the runtime then, if need be.
	CreatedAt, FinishedAt time.Time
	// StopGrace is how long it gets to end by itself where its state is unknown, two
	// seconds at least: the grace period of the pod's deletion or else of its spec.
	StopGrace time.Duration
	// PreStop is its preStop hook, a LifecycleHandler of core/v1 as JSON, empty if it has
	// none.
	PreStop string
	// Labels are its CRI labels, for [Config].Owned.
	Labels map[string]string
}

// Sandbox is what decisions need to know about a sandbox.
type Sandbox struct {
	// ID is its id.
	ID string
	// PodUID, Namespace and Pod name its pod.
	PodUID         types.UID
	Namespace, Pod string
	// Attempt counts the pod's sandboxes, from 0.
	Attempt uint32
	// Ready says that it is in use, whatever else is known.
	Ready bool
	// CreatedAt is when it was made.
	CreatedAt time.Time
	// Labels are its CRI labels, for [Config].Owned.
	Labels map[string]string
}

// shortestGrace is the shortest grace period, the kubelet's.
const shortestGrace = 2 * time.Second

// ContainerFromList converts an entry of the runtime's list.
func ContainerFromList(c *runtimeapi.Container) Container {
	made := containerOf(c.GetLabels(), c.GetAnnotations(), c.GetMetadata())
	made.ID, made.SandboxID, made.State = c.GetId(), c.GetPodSandboxId(), c.GetState()
	made.CreatedAt = timeOf(c.GetCreatedAt())
	return made
}

// ContainerFromStatus converts a status, as podcache has them. CRI statuses do not
// tell the sandbox.
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
	grace := shortestGrace
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

// SandboxFromList converts an entry of the runtime's list.
func SandboxFromList(s *runtimeapi.PodSandbox) Sandbox {
	return sandboxOf(s.GetId(), s.GetMetadata(), s.GetState(), s.GetCreatedAt(), s.GetLabels())
}

// SandboxFromStatus converts a status, as podcache has them.
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

// timeOf converts nanoseconds, of which none is no time.
func timeOf(nanos int64) time.Time {
	if nanos <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// list takes a snapshot with the two lists of the runtime. Entries without an ID are left
// out.
func list(ctx context.Context, rt Runtime) (s Snapshot, err error) {
	// Sandboxes first: one that is not ready then gets no more containers, so that
	// none is missing in the second list.
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
