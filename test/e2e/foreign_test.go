//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// foreignUID is the UID of the foreign pod that resembles a kubelet's pod.
const foreignUID = "11111111-2222-3333-4444-555555555555"

// foreignPod is a pod that no tested agent created.
type foreignPod struct {
	sandbox, container, log string
	before                  foreignState
}

// foreignState is everything of a foreign pod that an agent could change.
type foreignState struct {
	Sandbox, SandboxState, Container, State string
	Created, Started, Finished              int64
	Log, Image                              bool
}

// makeForeignPods creates two pods over CRI: one of a client that does not use Kubernetes,
// and one with all labels of a kubelet's pod.
func makeForeignPods(b *testbed) ([]*foreignPod, error) {
	kubelet := map[string]string{
		labelPodName: "of-a-kubelet", labelPodNamespace: "default", labelPodUID: foreignUID,
	}
	var pods []*foreignPod
	for name, labels := range map[string]map[string]string{"of-a-stranger": nil, "of-a-kubelet": kubelet} {
		pod, err := makeForeignPod(b, name, labels)
		if err != nil {
			return nil, fmt.Errorf("foreign pod %s: %w", name, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func makeForeignPod(b *testbed, name string, labels map[string]string) (*foreignPod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	logs := filepath.Join(b.dir, "foreign", name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		LogDirectory: logs, Labels: labels,
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kpbed/" + name},
	}
	sandbox, err := b.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return nil, err
	}
	containerLabels := map[string]string{labelContainerName: "server"}
	maps.Copy(containerLabels, labels)
	container, err := b.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "server"},
			Image:    &runtimeapi.ImageSpec{Image: imageServer},
			LogPath:  "server.log", Labels: containerLabels,
			Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return nil, err
	}
	_, err = b.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.GetContainerId()})
	if err != nil {
		return nil, err
	}
	pod := &foreignPod{
		sandbox: sandbox.GetPodSandboxId(), container: container.GetContainerId(), log: filepath.Join(logs, "server.log"),
	}
	pod.before, err = pod.look(b)
	return pod, err
}

// look reads the pod's state.
func (f *foreignPod) look(b *testbed) (foreignState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	sandbox, err := b.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: f.sandbox})
	if err != nil {
		return foreignState{}, err
	}
	container, err := b.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: f.container})
	if err != nil {
		return foreignState{}, err
	}
	image, err := b.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: imageServer}})
	if err != nil {
		return foreignState{}, err
	}
	_, logErr := os.Stat(f.log)
	st := container.GetStatus()
	return foreignState{
		Sandbox: sandbox.GetStatus().GetId(), SandboxState: sandbox.GetStatus().GetState().String(),
		Container: st.GetId(), State: st.GetState().String(),
		Created: st.GetCreatedAt(), Started: st.GetStartedAt(), Finished: st.GetFinishedAt(),
		Log: logErr == nil, Image: image.GetImage() != nil,
	}, nil
}
