// Package grpcprobe does gRPC health checks for package prober. It is a separate package so
// that a program without gRPC probes need not link gRPC.
//
// # What it does
//
// [Checker.Check] calls the standard method grpc.health.v1.Health/Check to find out whether
// a server, or one of its services, is serving. It uses grpc-go, like the kubelet, and
// reuses each connection for the next check.
//
// # What you supply
//
// You need not supply anything; a dialer is optional. Set prober.Config.GRPC to a Checker:
//
//	checker, err := grpcprobe.New(grpcprobe.Config{})
//	if err != nil { ... }
//	defer checker.Close()
//	manager, err := prober.New(prober.Config{GRPC: checker, ... })
//
// # What it guarantees
//
//  1. Every response, and every missing response, results in an outcome with the kubelet's
//     text.
//  2. If the server refuses the connection or does not use HTTP/2, the check fails at once,
//     not at the timeout.
//  3. If a reused connection ends before the server responds, the check does not fail: the
//     Checker repeats the check over a new connection.
//  4. A connection is closed when no check has used it for IdleTimeout.
//  5. The headers and the message of a response are limited to 16 KiB each.
//
// # Goroutines and locking
//
// A Checker is safe for concurrent use. Only one check at a time uses a connection. While a
// connection is open, gRPC runs a few goroutines for it. All of these goroutines end when
// Close is called.
//
// # Differences from the kubelet
//
//   - The kubelet opens a new connection for each probe; here connections are reused.
//   - The kubelet closes connections with SO_LINGER set to one second; here they are closed
//     by a reset, so that no socket stays in TIME_WAIT.
//   - If the server refuses the connection, the probe fails at once here, and the failure
//     names this cause; in the kubelet the probe takes the whole timeout and fails with a
//     timeout.
//   - The kubelet reads messages of up to 4 MiB; here the probe fails when the server
//     announces a message above 16 KiB.
//   - The kubelet's gRPC probes cannot use TLS; here they can, without verification of the
//     server's certificate (KEP-4939).
//
// # Testing your code with it
//
// Serve google.golang.org/grpc/health on a loopback port and set its status, or let
// [Config].Dial return a pipe. If your code needs only outcomes, use a fake prober.GRPC.
package grpcprobe
