// Package cri is a client for a container runtime. It makes the calls of the Container Runtime
// Interface that a node agent needs, over one gRPC connection and each with a deadline.
//
// # What it does
//
// A [Client] has the methods of cri.RuntimeService and cri.ImageManagerService of
// k8s.io/cri-api that the managers of this module and the kubelet's HTTP API call, with the
// same signatures. So it implements every Runtime and ImageService interface of this module
// without an adapter.
//
// [Client.Lister] lists sandboxes and containers over the same connection without decoding
// unchanged data. It is for pleg.Config.Lister.
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
// A file that imports k8s.io/cri-api/pkg/apis, which is always named cri, imports this package
// as criclient.
//
// The zero value of Client is not usable; create one with [New].
//
// # What it guarantees
//
//  1. New does not connect. The first call connects. After a failure the client reconnects
//     within four seconds of the runtime's return; until then calls return Unavailable at
//     once.
//  2. Each call ends when its context is done, and after two minutes at the latest, the
//     kubelet's default. RunPodSandbox has four minutes, because a runtime may have to pull
//     the sandbox's image. StopContainer and ExecSync have their own timeout in addition.
//     PullImage, GetContainerEvents and an ExecSync without a timeout only end with their
//     context.
//  3. Messages of up to 16 MiB are received, the maximum that containerd sends by default.
//  4. Errors of the runtime are returned unchanged, so that Code of
//     google.golang.org/grpc/status returns their code. Only ExecSync adds an error of its
//     own: see [Client.ExecSync].
//  5. No call is retried.
//
// # Goroutines and locking
//
// All goroutines belong to the gRPC connection. [Client.Close] ends them. All methods may be
// called concurrently.
//
// # Differences from the kubelet
//
// The kubelet's client is k8s.io/cri-client, which links 34 more packages.
//
//   - The timeout of calls is fixed; the kubelet has runtimeRequestTimeout.
//   - The kubelet's client waits for a connection, up to the timeout, when it is created. This
//     one connects when it is used.
//   - A timeout of ExecSync is rounded up to whole seconds; the kubelet's client rounds down,
//     and 0 means no timeout to the runtime.
//   - A grace period of StopContainer above 68 years does not make the call fail at once.
//   - There are no methods for calls that this module does not need, such as checkpoints and
//     metrics.
//
// # Testing your code with it
//
// Code that declares the methods it calls needs no Client in its tests: the Node of package
// fakecri has the same methods. To include the connection in a test, serve that node on a
// socket, as the example does.
package cri
