// Package streams tests exec, attach and port-forward of agent/kubeletapi with the clients of
// kubectl: k8s.io/client-go/tools/remotecommand and portforward, over SPDY and over WebSocket.
//
// The tests run on fakecri, in this process, with short streams. The tests with the build tag e2e
// run on a containerd that they start, with minimal-agent as a process of its own and long streams.
// They need root.
package streams
