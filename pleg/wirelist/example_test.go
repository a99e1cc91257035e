package wirelist_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

func ExampleLister() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	runtime, err := fakecri.New(fakecri.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := runtime.Serve(ctx, lis); err != nil {
			fmt.Println(err)
		}
	}()
	defer func() {
		stop()
		<-served
	}()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	lists, err := wirelist.New(wirelist.Config{Conn: conn})
	if err != nil {
		fmt.Println(err)
		return
	}
	var last []*runtimeapi.PodSandbox
	look := func() {
		all, err := lists.ListPodSandbox(ctx, nil)
		if err != nil {
			fmt.Println(err)
		}
		for i, box := range all {
			known := i < len(last) && last[i] == box
			fmt.Println(box.GetMetadata().GetName(), box.GetState(), known)
		}
		fmt.Println()
		last = all
	}
	run := func(name string) string {
		id, err := runtime.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		}, "")
		if err != nil {
			fmt.Println(err)
		}
		return id
	}
	run("web")
	db := run("db")
	look()
	look() // no item is decoded
	if err := runtime.StopPodSandbox(ctx, db); err != nil {
		fmt.Println(err)
	}
	look() // one item is decoded
	// Output:
	// web SANDBOX_READY false
	// db SANDBOX_READY false
	//
	// web SANDBOX_READY true
	// db SANDBOX_READY true
	//
	// web SANDBOX_READY true
	// db SANDBOX_NOTREADY false
}
