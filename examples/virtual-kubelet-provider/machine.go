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

// Machine runs containers: a cloud's API, a hypervisor, an HPC queue. Methods are
// called for many pods at once.
type Machine interface {
	// Start starts a container and returns when it runs.
	Start(ctx context.Context, pod *corev1.Pod, c *corev1.Container, restarts int) error
	// Stop asks a container to end, makes it after grace, and returns when it has.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove forgets a container that has ended.
	Remove(ctx context.Context, id string) error
	// Exec runs a command in a container and returns its exit code.
	Exec(ctx context.Context, id string, command []string, output io.Writer) (int32, error)
	// Containers returns what there is of a pod, running or ended.
	Containers(uid types.UID) []Container
}

// Container is what a Machine knows of a container. Restarts is how often those of
// the same name in its pod were restarted before it.
type Container struct {
	ID, Name              string
	Restarts              int
	Running               bool
	StartedAt, FinishedAt time.Time
	ExitCode              int32
}

// view shows a machine in the words that Kubeparts has for what a runtime says: CRI's.
// It asks each time, so what it says is always new. A machine that is asked over a
// network has a podcache.Cache in its place.
type view struct{ machine Machine }

// Get returns what there is of the pod now.
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

// Known is always true, because Get asks the machine.
func (v view) Known(types.UID) bool { return true }

// GetNewerThan is the same: now is newer than any time that has been.
func (v view) GetNewerThan(_ context.Context, uid types.UID, _ time.Time) (*podcache.Status, error) {
	return v.Get(uid)
}
