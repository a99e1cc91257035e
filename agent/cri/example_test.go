package cri_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/fakecri"
)

// This client calls an in-memory node that serves a socket. A real runtime has its own socket,
// such as /run/containerd/containerd.sock.
func ExampleClient() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	stop, err := serveSocket(socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	client, err := criclient.New(criclient.Config{Endpoint: "unix://" + socket})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	version, err := client.Version(ctx, "v1")
	fmt.Println(version.GetRuntimeApiVersion(), err)
	id, err := client.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"},
	}, "")
	fmt.Println(id != "", err)
	boxes, err := client.ListPodSandbox(ctx, nil)
	for _, b := range boxes {
		fmt.Println(b.GetMetadata().GetName(), b.GetState())
	}
	fmt.Println(err)
	// Output:
	// v1 <nil>
	// true <nil>
	// web SANDBOX_READY
	// <nil>
}

// serveSocket serves an empty node until stop is called.
func serveSocket(socket string) (stop func(), err error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	node, err := fakecri.New(fakecri.Config{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- node.Serve(ctx, listener) }()
	return func() {
		cancel()
		if err := <-served; err != nil {
			fmt.Println(err)
		}
	}, nil
}
