package grpcprobe_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// A server reports its health.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server, status := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, status)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	checker, err := grpcprobe.New(grpcprobe.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer checker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request := prober.GRPCRequest{Address: listener.Addr().String()}
	fmt.Println(checker.Check(ctx, request))
	status.Shutdown()
	fmt.Println(checker.Check(ctx, request))
	// Output:
	// success service healthy
	// failure service unhealthy (responded with "NOT_SERVING")
}
