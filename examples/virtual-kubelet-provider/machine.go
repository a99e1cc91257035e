package provider

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// Machine runs containers, for example through a cloud's API, a hypervisor or an HPC queue. Its
// methods are called concurrently.
type Machine interface {
	// Start starts a container and returns when it is running.
	Start(ctx context.Context, pod *corev1.Pod, c *corev1.Container, restarts int) error
	// Stop requests a container to stop, kills the container after grace, and returns when the
	// container has ended.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove deletes a container that has ended.
	Remove(ctx context.Context, id string) error
	// Exec runs a command in a container and returns its exit code.
	Exec(ctx context.Context, id string, command []string, output io.Writer) (int32, error)
	// Containers returns the running and ended containers of a pod.
	Containers(uid types.UID) []Container
}

// Container is the state of a container. Restarts is the number of earlier containers of the same
// name in its pod.
type Container struct {
	ID, Name              string
	Restarts              int
	Running               bool
	StartedAt, FinishedAt time.Time
	ExitCode              int32
}

// view returns the state of a machine as CRI messages, because Kubeparts needs CRI messages. It
// queries the machine in each call, so its results are always current. If queries are slow, for
// example over a network, use a podcache.Cache instead.
type view struct{ machine Machine }

// Get returns the current state of a pod.
func (v view) Get(uid types.UID) (*podcache.Status, error) {
	s := &podcache.Status{UID: uid}
	for _, c := range v.machine.Containers(uid) {
		shown := &runtimeapi.ContainerStatus{
			Id:          c.ID,
			Labels:      map[string]string{"io.kubernetes.container.name": c.Name},
			Annotations: map[string]string{"io.kubernetes.container.restartCount": fmt.Sprint(c.Restarts)},
			State:       runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt:   c.StartedAt.UnixNano(),
			StartedAt:   c.StartedAt.UnixNano(),
		}
		if !c.Running {
			shown.State, shown.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, c.ExitCode
			shown.FinishedAt = c.FinishedAt.UnixNano()
		}
		s.Containers = append(s.Containers, shown)
	}
	podcache.SortContainers(s.Containers)
	return s, nil
}

// Known returns true, because Get queries the machine.
func (v view) Known(types.UID) bool { return true }

// GetNewerThan returns the same as Get, because the current state is newer than any earlier time.
func (v view) GetNewerThan(_ context.Context, uid types.UID, _ time.Time) (*podcache.Status, error) {
	return v.Get(uid)
}
