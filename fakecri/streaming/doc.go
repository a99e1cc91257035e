// Package streaming serves Exec, Attach and PortForward of a fakecri.Node, as containerd
// does: over WebSocket and SPDY, with the server of k8s.io/cri-streaming. It is a separate
// package, because that server has many dependencies.
//
// # What it does
//
// A [Server] creates the URLs of streams. [Server.Serve] serves them by calling
// fakecri.Node.ExecStream, AttachStream and PortForwardStream.
//
// # What you supply
//
// You supply a listener, whose address is part of the URLs. Set [Server.Streamer] as
// fakecri.Config.Streamer. A Server is also an http.Handler, for your own http.Server.
//
// # What it guarantees
//
//  1. A client can use a URL once, and only within a minute, as with a real runtime.
//  2. The exit code of an exec is returned as in the Kubernetes protocols.
//
// # Goroutines and locking
//
// New starts nothing. When Serve returns, all streams have ended. The goroutines that read from
// the clients end immediately afterwards, because their connections are closed.
//
// # Differences from the kubelet
//
// The kubelet has no such server, because the runtime serves these streams. In contrast to
// a real runtime, only commands with fakecri.Exec.Echo read their standard input, and see the
// size of the terminal.
//
// # Testing your code with it
//
// See the Example.
package streaming
