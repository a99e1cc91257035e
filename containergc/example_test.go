package containergc_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// noPods reports that no pod has terminated or was deleted.
type noPods struct{}

func (noPods) ShouldPodContentBeRemoved(uid types.UID) bool { return uid != "1234" }
func (noPods) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return uid != "1234" }

// A container has crashed twice. One dead container is kept.
func Example() {
	ctx := context.Background()
	node, err := fakecri.New(fakecri.Config{Images: []fakecri.Image{{Name: "demo/web:1"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1234"},
	}
	box, err := node.RunPodSandbox(ctx, pod, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	for attempt := range uint32(3) {
		id, err := node.CreateContainer(ctx, box, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: "demo/web:1"},
			Labels: map[string]string{
				crilabels.PodUID: "1234", crilabels.PodName: "web", crilabels.PodNamespace: "default",
			},
		}, pod)
		if err == nil {
			err = node.StartContainer(ctx, id)
		}
		if err == nil && attempt < 2 {
			err = node.Kill(id, 1)
		}
		if err != nil {
			fmt.Println(err)
		}
	}

	gc, err := containergc.New(containergc.Config{
		Runtime: node, Remover: node, Pods: noPods{}, SourcesReady: func() bool { return true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := gc.Plan(ctx)
	for _, d := range plan.Decisions {
		fmt.Println(d.Kind, d.Attempt, d.Remove, d.Reason)
	}
	fmt.Println(err)
	res, err := gc.Collect(ctx)
	fmt.Println(len(res.Removed), err)
	// Output:
	// container 0 true the container has more exited instances than are kept
	// container 1 false within limits
	// container 2 false running
	// sandbox 0 false running
	// <nil>
	// 1 <nil>
}
