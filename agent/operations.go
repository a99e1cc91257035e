package agent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/internal/podloop"
)

// ErrNotRestartable is returned by [Agent.Restart] for a pod that is not admitted, that is being
// stopped, or that has no sandbox yet.
var ErrNotRestartable = podloop.ErrNotRestartable

// ErrInvalidImageName is returned by [Agent.Pull] for a name that is not the name of an image.
var ErrInvalidImageName = podloop.ErrInvalidImageName

// Restart requests a restart of a pod. The agent stops the pod's containers within their grace
// period, and starts all of them again in a new sandbox. Their restart policies have no effect. The
// pod keeps its UID, its volumes and its allocations, and the restart counts of its containers
// increase. The restart ends the back-offs of the containers. The back-offs of image pulls
// continue.
//
// Restart returns when the request is stored, and does not wait for the restart. If the agent
// stops first, the next agent with the same State completes the restart. A second request has no
// effect until the new sandbox exists. The error is [ErrUnknownPod] for an unknown pod.
func (a *Agent) Restart(ctx context.Context, pod types.UID) error {
	if err := a.pods.Restart(ctx, pod); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// Pull pulls an image, even if the runtime has an image of this name. It uses the credentials
// of [Config].Credentials, and returns the image when the pull is complete. Garbage collection may
// delete the image later, like every other image that the agent has pulled. Pull records no events.
func (a *Agent) Pull(ctx context.Context, image string) (*runtimeapi.Image, error) {
	found, err := a.pods.Pull(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("agent: pull image %s: %w", image, err)
	}
	return found, nil
}
