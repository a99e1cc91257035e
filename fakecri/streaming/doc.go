// Package streaming lets a fakecri.Node answer Exec, Attach and PortForward with
// URLs that work, as containerd does: over WebSocket and SPDY, by the server of
// k8s.io/cri-streaming. It is a package of its own because of that server's
// weight.
//
// # What it does
//
// A [Server] is an http.Handler. It makes the URLs and serves them: what is asked
// of a container's program is answered by fakecri.Node.ExecStream, AttachStream
// and PortForwardStream.
//
// # What you supply
//
// A listener, whose address goes into the URLs, and an http.Server on it; and
// [Server.Streamer] as fakecri.Config.Streamer.
//
// # What it guarantees
//
//  1. A URL works once and for a minute, as a runtime's does.
//  2. The exit code of an exec arrives as the Kubernetes protocols have it.
//
// # Goroutines and locking
//
// New is inert. The streams run in the goroutines of the http.Server, which ends
// them when it is closed.
//
// # Differences from the kubelet
//
// None: in the kubelet's world this is the runtime's side. Unlike a real one, programs
// do not read their standard input, and terminals have no size.
//
// # Testing your code with it
//
// The Example is all of it.
package streaming
