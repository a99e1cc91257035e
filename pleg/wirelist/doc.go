// Package wirelist lists the sandboxes and containers of a CRI runtime without decoding
// unchanged items.
//
// # What it does
//
// An agent requests the same two lists every second, and usually they have not changed.
// Decoding them is most of the cost of an idle node. A [Lister] reads the encoded
// responses. It stores the messages of the newest lists, each with a digest of its bytes.
// For an item with the same ID, state and digest it returns the stored message. It decodes
// only the others, with the standard decoder. Labels, annotations and items may be in any
// order.
//
// # What you supply
//
// A connection to the runtime, usually that of the CRI client:
//
//	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", …)
//	lists, err := wirelist.New(wirelist.Config{Conn: conn})
//
// The remaining cost is that of gRPC. With the dial options grpc.WithStaticStreamWindowSize
// and grpc.WithStaticConnWindowSize of some MiB, gRPC does not measure the bandwidth of the
// socket, which saves a few allocations.
//
// Lister has two methods of cri.RuntimeService of k8s.io/cri-api, with their signatures, so
// it fits wherever only lists are needed. The user declares
//
//	type Lister interface {
//		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
//		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
//	}
//
// and accepts either a Lister or any CRI client. Because the results are complete CRI
// messages and not a type of this package, the user needs only one implementation of its
// rules about pods and labels. This costs memory: the stored messages need about as much as
// one ordinary list while it is in use, 4.5 MB for 500 pods.
//
// Use a Lister for one user that always sets the same filter, and list single pods with the
// ordinary client. A list with another filter is correct, but it replaces the stored
// messages.
//
// # What it guarantees
//
//  1. The items equal those of the standard decoder, field by field, including unknown
//     fields. What the standard decoder rejects is rejected. The order is the same, except
//     as in 3. The probability that a changed item with the same ID and state is taken for
//     unchanged is 2^-64 per change; a changed state is always found.
//  2. The lister never modifies what it has returned. Callers must not modify it either,
//     because later calls return it again.
//  3. If a list has the same items as the previous one, the result is the same slice in the
//     same order, even if the response has another order, as those of containerd do. Such a
//     list allocates nothing except for the call itself.
//  4. With an error there is no list. The stored messages remain.
//  5. A list that is too large for one message is requested as a stream (KEP-5825), and so
//     are the following lists until one is at most half as large. A stream that breaks is
//     an error, not a partial list. If the runtime does not support streams, the error is
//     [ErrTooLarge], and the next list is requested in one message again.
//  6. On the wire, a list is the same call as an ordinary client's, so containerd and CRI-O
//     accept it as the first call of a connection.
//
// # Goroutines and locking
//
// The package starts no goroutines; those of the connection are gRPC's. There is one lock
// for each kind of list. It is held while a response is read, not while waiting for it, so
// lists may be requested concurrently. A call ends when its context is done.
//
// # Differences from the kubelet
//
//   - The kubelet decodes every item of every list, and parses its annotations.
//   - The kubelet requests streams only behind the feature gate CRIListStreaming, and then
//     always. Here a list that fits is requested in one message.
//   - In the kubelet every relist above 16 MiB fails; here the error is ErrTooLarge if the
//     runtime does not support streams.
//
// The baseline is kubelet 1.36. The messages of both lists are the same in cri-api v0.36
// and v0.37. Fields of a newer runtime that the cri-api of this build does not know are
// preserved and compared like all others.
//
// # Testing your code with it
//
// Code that accepts the interface above needs no Lister in its tests: any fake with these
// methods works, such as the Node of package fakecri. To include the Lister in a test,
// serve that node on a unix socket. A connection that fills in responses itself, without
// the codec of the call, does not work.
package wirelist
