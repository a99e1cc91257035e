// Package streaming serves Exec, Attach and PortForward of a fakecri.Node, as containerd
// does: over WebSocket and SPDY, with the server of k8s.io/cri-streaming. It is a separate
// package, because that server has many dependencies.
//
// # What it does
//
// A [Server] is an http.Handler. It creates the URLs of streams and serves them by calling
// fakecri.Node.ExecStream, AttachStream and PortForwardStream.
//
// # What you supply
//
// You supply a listener, whose address is part of the URLs, and an http.Server on that
// listener. Set [Server.Streamer] as fakecri.Config.Streamer.
//
// # What it guarantees
//
//  1. A client can use a URL once, and only within a minute, as with a real runtime.
//  2. The exit code of an exec is returned as in the Kubernetes protocols.
//
// # Goroutines and locking
//
// New starts nothing. The streams run in the goroutines of the http.Server, which ends them
// when it is closed.
//
// # Differences from the kubelet
//
// The kubelet has no such server, because the runtime serves these streams. In contrast to
// a real runtime, programs do not read their standard input, and terminals have no size.
//
// # Testing your code with it
//
// See the Example.
package streaming
