// Package cri is a client of a container runtime: the calls of the Container Runtime
// Interface that a node agent makes, over one gRPC connection, each with a deadline.
//
// # What it does
//
// A [Client] has the methods of cri.RuntimeService and cri.ImageManagerService of
// k8s.io/cri-api that the managers of this module and the kubelet's HTTP API call, with
// the signatures that they have there. So it fits every Runtime and ImageService
// interface of this module without an adapter.
//
// [Client.Lister] lists sandboxes and containers over the same connection without
// decoding what has not changed; it is for pleg.Config.Lister.
//
// # What you supply
//
// The address of the runtime's socket:
//
//	client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	…
//	defer client.Close()
//	generator, err := pleg.New(pleg.Config{Runtime: client, Events: client, Lister: client.Lister(), …})
//
// A file that imports k8s.io/cri-api/pkg/apis, which is named cri everywhere, imports this
// package as criclient.
//
// The zero value of Client is not usable; make one with [New].
//
// # What it guarantees
//
//  1. New does not connect. The first call connects; after a failure the connection is
//     made again within four seconds of the runtime's return. Until then calls return
//     Unavailable at once.
//  2. Each call ends when its context does, and at the latest after two minutes, the
//     kubelet's default. RunPodSandbox has four minutes, because a runtime may have to
//     pull the sandbox's image. StopContainer and ExecSync have their own timeout in
//     addition. PullImage, GetContainerEvents and an ExecSync without a timeout end only
//     with their context.
//  3. Messages of up to 16 MiB are received, the most that containerd sends by default.
//  4. Errors of the runtime are returned unchanged, so that Code of
//     google.golang.org/grpc/status returns their code. Only ExecSync adds one: see [Client.ExecSync].
//  5. No call is repeated.
//
// # Goroutines and locking
//
// All goroutines are those of the gRPC connection. [Client.Close] ends them. All methods
// may be called concurrently.
//
// # Differences from the kubelet
//
// The kubelet's client is k8s.io/cri-client, which links 34 packages more.
//
//   - The timeout of calls is fixed; the kubelet has runtimeRequestTimeout.
//   - The kubelet's client waits up to the timeout for a connection and then creates the
//     client. Ours connects when it is used.
//   - A timeout of ExecSync is rounded up to whole seconds; the kubelet's client rounds
//     down, and 0 means no timeout to the runtime.
//   - A grace period of StopContainer above 68 years does not make the call fail at once.
//   - There are no methods for what nothing here calls, such as checkpoints and metrics.
//
// # Testing your code with it
//
// Code that declares the methods that it calls needs no Client in its tests: the Node of
// package fakecri has the same ones. To have the connection in the test, let that node
// serve a socket, as the example does.
package cri
