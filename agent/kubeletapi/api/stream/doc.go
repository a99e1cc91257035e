// Package stream is a client for the streams of a kubelet or of package kubeletapi: it runs
// commands in containers, attaches to containers, and forwards ports of pods.
//
// # What it does
//
// [Exec] runs a command in a container, and [Attach] connects to the main process of a container.
// Both return when the process has ended, and an [ExitError] has its exit code. [DialPorts]
// connects to a pod, and [Ports.Forward] connects a local connection with a port of the pod.
//
// All streams use SPDY. Every CRI runtime supports SPDY for exec, attach and port-forward. A SPDY
// stream can be closed in one direction, so that a command sees the end of its standard input.
// Package github.com/moby/spdystream implements the protocol.
//
// # What you supply
//
// You supply a client of package api, and the readers and writers.
//
// # What it guarantees
//
//  1. A stream that breaks is an error, and never looks like a command that has succeeded.
//  2. When ctx is done, all connections are closed, and all functions return.
//
// # Goroutines and locking
//
// All functions and methods wait for their goroutines, with one exception: a goroutine that
// reads Stdin ends when its Read returns. All methods of [Ports] may be called concurrently.
//
// # Differences from kubectl
//
//   - kubectl prefers WebSocket, and uses SPDY if the server does not support WebSocket. This
//     package always uses SPDY.
//
// # Testing your code with it
//
// Serve a fakecri.Node with package fakecri/streaming, and put a kubeletapi.Server in front of it.
package stream
