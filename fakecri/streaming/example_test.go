package streaming_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
)

func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := streaming.New(listener.Addr().String())
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Streamer: server.Streamer})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()

	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}
	sandbox, _ := node.RunPodSandbox(ctx, pod, "")
	container, _ := node.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "web"}, Image: &runtimeapi.ImageSpec{Image: "demo/web:1"},
	}, pod)
	_ = node.StartContainer(ctx, container)

	answer, err := node.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: container, Cmd: []string{"true"}, Stdout: true})
	fmt.Println(err, strings.HasPrefix(answer.GetUrl(), "http://"+listener.Addr().String()+"/exec/"))
	stop()
	fmt.Println(<-done)
	// Output:
	// <nil> true
	// <nil>
}
