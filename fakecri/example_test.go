package fakecri_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// keep is the agent under test. It creates a pod, and restarts the container of the pod
// when the container has exited. It needs only these methods of the CRI.
func keep(ctx context.Context, rt interface {
	RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error)
	CreateContainer(context.Context, string, *runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(context.Context, string) error
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}, pod *runtimeapi.PodSandboxConfig, app *runtimeapi.ContainerConfig,
) error {
	all, err := rt.ListContainers(ctx, nil)
	if err != nil || len(all) > 0 && all[len(all)-1].GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return err
	}
	sandbox := ""
	if len(all) > 0 {
		sandbox = all[0].GetPodSandboxId()
	} else if sandbox, err = rt.RunPodSandbox(ctx, pod, ""); err != nil {
		return err
	}
	app.Metadata.Attempt = uint32(len(all))
	id, err := rt.CreateContainer(ctx, sandbox, app, pod)
	if err != nil {
		return err
	}
	return rt.StartContainer(ctx, id)
}

func ExampleNew() {
	ctx := context.Background()
	node, err := fakecri.New(fakecri.Config{
		Images:   fakecri.DemoImages(),
		Programs: fakecri.DemoPrograms(),
		Record:   true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}}
	app := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		Image:    &runtimeapi.ImageSpec{Image: "demo/web:1"},
	}

	fmt.Println(keep(ctx, node, pod, app))         // keep creates the pod
	fmt.Println(keep(ctx, node, pod, app))         // nothing to do
	fmt.Println(node.Kill("default/web/app", 137)) // the container exits
	fmt.Println(node.Fail("StartContainer", fakecri.Fault{Err: context.DeadlineExceeded, Times: 1}))
	fmt.Println(keep(ctx, node, pod, app)) // the restart fails
	for _, call := range node.Calls() {
		fmt.Println(call)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// context deadline exceeded
	// ListContainers
	// RunPodSandbox default/web
	// CreateContainer default/web/app
	// StartContainer default/web/app
	// ListContainers
	// ListContainers
	// CreateContainer default/web/app
	// StartContainer default/web/app
}
