package main

import (
	"context"

	"google.golang.org/grpc"
)

// invoke is a gRPC call that succeeds.
func invoke(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}
