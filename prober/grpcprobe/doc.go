// Package grpcprobe checks health by gRPC, for the package prober. It is a package
// of its own so that whoever has no gRPC probes need not link it. It does not link
// gRPC.
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
//     there are no errors to be thrown away. Whatever the answer, the text is that
//     of gRPC's own client, codes of HTTP, resets and malformed messages included.
//  2. A port that refuses is a failure at once, not at the timeout, and so is one
//     whose server does not speak HTTP/2. A kept connection that has ended without a
//     sign of an answer, and a server that says that it has not looked at the
//     request, are not: there is one try more, on a new connection.
//  3. Connections that were not asked for within IdleTimeout are closed, at the
//     latest when it has passed once more.
//  4. No more than 16 KiB are held of a message, of at most two, and as much of the
//     headers; and no more frames are read for an answer than one message could take.
//
// # Goroutines and locking
//
// None are kept. A Checker may be used by any number of goroutines; each check has a
// connection for itself while it lasts, and its reads and writes are done by the
// caller. So a kept connection is not listened to between checks: a server that pings
// one that is idle, and hangs up when there is no answer, costs the next check a new
// one.
//
// # Differences from the kubelet
//
//   - Connections are reused. The kubelet builds an HTTP/2 client for each probe, in
//     861 allocations, those of the server in the same process included. A check over
//     a kept one takes 31, its context's included and the server's not, where gRPC's
//     own client takes 94: there is one call at a time, with one message each way.
//   - Connections are closed by a reset, which leaves nothing in TIME_WAIT.
//   - A refused connection is a failure that says so within a millisecond; the
//     kubelet's takes the whole timeout and says that there was one.
//   - The kubelet reads messages of up to 4 MiB; here the probe fails when the server
//     announces a message above 16 KiB.
//   - TLS, without verification of the server's certificate (KEP-4939).
//   - The user agent is the one of Config alone, without that of gRPC.
//
// # Testing your code with it
//
// Serve google.golang.org/grpc/health on a loopback port, and set what it says; or
// give [Config].Dial a pipe. For what depends on outcomes only, implement prober.GRPC
// by a function instead.
package grpcprobe
