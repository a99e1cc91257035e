// Package grpcprobe checks health by gRPC, for the package prober. It is a package
// of its own so that a program without gRPC probes need not link gRPC.
//
// # What it does
//
// [Checker.Check] asks the standard service, grpc.health.v1.Health/Check, whether a
// server, or one service of it, is serving. It uses grpc-go, as the kubelet does, and
// keeps each connection for the next check.
//
// # What you supply
//
// Nothing, or a dialer. A Checker is what prober.Config.GRPC wants:
//
//	checker, err := grpcprobe.New(grpcprobe.Config{})
//	if err != nil { ... }
//	defer checker.Close()
//	manager, err := prober.New(prober.Config{GRPC: checker, ... })
//
// # What it guarantees
//
//  1. Every answer, and its absence, is an outcome with the kubelet's text.
//  2. A port that refuses is a failure at once, not at the timeout, and so is a
//     server that does not speak HTTP/2.
//  3. A kept connection that ends before the server answers is no failure: the
//     Checker asks once more, over a new connection.
//  4. A connection is closed when no check has used it for IdleTimeout.
//  5. Of an answer, the headers and the message are at most 16 KiB each.
//
// # Goroutines and locking
//
// A Checker may be used by any number of goroutines. One check at a time uses a
// connection. While a connection is kept, gRPC has a few goroutines for it. All of
// them end with Close.
//
// # Differences from the kubelet
//
//   - Connections are reused. The kubelet connects anew for each probe.
//   - Connections are closed by a reset, which leaves nothing in TIME_WAIT.
//   - A refused connection is a failure that says so at once; the kubelet's takes the
//     whole timeout and says that there was one.
//   - The kubelet reads messages of up to 4 MiB; here the probe fails when the server
//     announces a message above 16 KiB.
//   - TLS, without verification of the server's certificate (KEP-4939).
//
// # Testing your code with it
//
// Serve google.golang.org/grpc/health on a loopback port and set its status, or
// give [Config].Dial a pipe. For code that depends on outcomes only, implement
// prober.GRPC by a function instead.
package grpcprobe
