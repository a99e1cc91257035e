// Package cri is a client for a container runtime. It makes the calls of the Container Runtime
// Interface (CRI) that a node agent needs, over one gRPC connection. Nearly all calls have a
// timeout.
//
// # What it does
//
// A [Client] has the methods of cri.RuntimeService and cri.ImageManagerService (package
// k8s.io/cri-api/pkg/apis) that this module calls: in its managers and in package kubeletapi.
// The signatures are the same. A Client therefore implements every Runtime and ImageService
// interface of this module without an adapter.
//
// [Client.Lister] returns a lister for pleg.Config.Lister. The lister lists sandboxes and
// containers over the same connection, and does not decode unchanged data.
//
// # What you supply
//
// You supply the address of the runtime's socket:
//
//	client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	…
//	defer client.Close()
//	generator, err := pleg.New(pleg.Config{Runtime: client, Events: client, Lister: client.Lister(), …})
//
// In this module, k8s.io/cri-api/pkg/apis is always imported as cri. A file that imports both
// packages imports this package as criclient.
//
// The zero value of Client is not usable. Create a Client with [New].
//
// # What it guarantees
//
//  1. New does not connect. The first call connects. After a failure, the client reconnects
//     within four seconds after the runtime is available again. Until then, calls return the
//     code Unavailable immediately.
//  2. Each call ends when its context is done. The timeout of a call is two minutes, the
//     kubelet's default. The timeout of RunPodSandbox is four minutes, because a runtime may
//     have to pull the sandbox's image. For StopContainer and ExecSync, the timeout in the
//     arguments is added to the two minutes. For CheckpointContainer, a longer timeout in the
//     request replaces the two minutes. PullImage, GetContainerEvents, and an ExecSync with the
//     timeout 0 have no timeout.
//  3. The client receives messages of up to 16 MiB, the maximum that containerd sends by
//     default.
//  4. Errors of the runtime are returned unchanged, so that Code of
//     google.golang.org/grpc/status returns their code. Only ExecSync adds its own error: see
//     [Client.ExecSync].
//  5. The client does not retry calls.
//
// # Goroutines and locking
//
// All goroutines belong to the gRPC connection. [Client.Close] ends them. All methods may be
// called concurrently.
//
// # Differences from the kubelet
//
// The kubelet's client is k8s.io/cri-client, which links 34 packages more than this client.
//
//   - The timeout of calls of this client is fixed. The kubelet has the option
//     runtimeRequestTimeout.
//   - The kubelet's client waits for a connection, up to the timeout, when it is created. This
//     client connects in its first call.
//   - This client rounds the timeout of ExecSync up to whole seconds. The kubelet's client
//     rounds down, so a timeout below one second becomes 0, which means no timeout.
//   - In this client, StopContainer accepts a grace period above 68 years. In the kubelet's
//     client, such a call fails immediately.
//   - This client has no methods for calls that this module does not need, such as
//     ListPodSandboxMetrics. The kubelet's client has them.
//
// # Testing your code with it
//
// If your code declares an interface with the methods that it calls, tests need no Client: the
// Node of package fakecri has the same methods. To include the connection in a test, serve such
// a Node on a socket, as the example does.
package cri
