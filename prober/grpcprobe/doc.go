// Package grpcprobe checks health by gRPC, for the package prober. It is a package
// of its own so that whoever has no gRPC probes need not link gRPC.
//
// # What it does
//
// [Checker.Check] asks the standard service, grpc.health.v1.Health/Check, whether a
// server, or one service of it, is serving. Its connections are kept for the next
// time.
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
//  1. An answer of any kind, and none in time, is an outcome with the kubelet's text;
//     there are no errors to be thrown away.
//  2. A port that refuses is a failure at once, not at the timeout. A kept connection
//     that has ended is not: there is one try on a new one.
//  3. Connections that were not asked for within IdleTimeout are closed by the next
//     check of any, or by Close, and have no transport open even before.
//
// # Goroutines and locking
//
// Each kept connection has those of gRPC, which end with it. After [Checker.Close]
// there are none. A Checker may be used by any number of goroutines; those of one
// address share a connection.
//
// # Differences from the kubelet
//
//   - Connections are reused. The kubelet builds an HTTP/2 client for each probe, in
//     861 allocations, those of the server in the same process included. A check over
//     a kept one takes 82, and the server's none of them: two for its messages here,
//     the rest in gRPC itself, whose call is not to be had for less.
//   - Connections are closed by a reset, which leaves nothing in TIME_WAIT.
//   - A refused connection is a failure that says so within a millisecond; the
//     kubelet's takes the whole timeout and says that there was one.
//   - TLS, without verification of the server's certificate (KEP-4939).
//
// # Testing your code with it
//
// Serve google.golang.org/grpc/health on a loopback port, and set what it says; or
// give [Config].Dial a pipe. For what depends on outcomes only, implement prober.GRPC
// by a function instead.
package grpcprobe
