// Package wirelist lists the sandboxes and containers of a CRI runtime without decoding
// unchanged items.
//
// # What it does
//
// An agent requests the same two lists every second, and usually the lists have not
// changed. Decoding the lists is most of the cost of an idle node. A [Lister] reads the
// encoded responses. It stores the messages of the newest lists, each with a digest of its
// bytes. For an item with the same ID, state and digest it returns the stored message. It
// decodes only the other items, with the standard decoder. Labels, annotations and items
// may be in any order.
//
// # What you supply
//
// You supply a connection to the runtime, usually the connection of the CRI client:
//
//	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", …)
//	lists, err := wirelist.New(wirelist.Config{Conn: conn})
//
// The remaining cost is the cost of gRPC. The dial options grpc.WithStaticStreamWindowSize
// and grpc.WithStaticConnWindowSize, set to some MiB, disable the dynamic flow control of
// gRPC. This saves a few allocations.
//
// Lister has two methods of cri.RuntimeService of k8s.io/cri-api, with the same signatures,
// so code that needs only lists can use it. That code declares
//
//	type Lister interface {
//		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
//		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
//	}
//
// and accepts either a Lister or any CRI client. The results are complete CRI messages and
// not a type of this package, so the code can process them like the results of a CRI
// client. This costs memory: the stored messages need about as much as one ordinary list
// while it is in use, 4.5 MB for 500 pods.
//
// Use a Lister for one caller that always sets the same filter, and list single pods with
// the ordinary client. A list with another filter is correct, but its messages replace the
// stored messages.
//
// # What it guarantees
//
//  1. The items equal the items that the standard decoder returns, field by field,
//     including unknown fields. If the standard decoder rejects a response, the Lister
//     rejects it too. The order is the same too, except in the case of guarantee 3. The
//     Lister always detects a changed state. For any other change of an item, the
//     probability that the Lister misses the change is 2^-64.
//  2. The Lister never modifies messages and slices that it has returned. Callers must not
//     modify them either, because later calls return the same messages and slices again.
//  3. If a list has the same items as the previous list, the result is the same slice in
//     the same order, even if the items in the response are in another order, as with
//     containerd. Apart from the gRPC call itself, such a list allocates nothing.
//  4. A call that returns an error returns no items. The stored messages remain.
//  5. If a list is too large for one message, the Lister requests it as a stream
//     (KEP-5825). It also requests the following lists as streams, until a list is at most
//     half as large as the list that was too large. If a stream breaks, the call returns an
//     error, not a partial list. If the runtime does not support streams, the error is
//     [ErrTooLarge], and the Lister requests the next list in one message again.
//  6. The content type of each call is application/grpc, as with an ordinary client. CRI-O
//     closes a connection if its first call has another content type.
//
// # Goroutines and locking
//
// The package starts no goroutines; gRPC starts the goroutines of the connection. Each kind
// of list has one lock. A call holds the lock while it reads a response, not while it waits
// for the response, so callers may request lists concurrently. A call ends when its context
// is done.
//
// # Differences from the kubelet
//
//   - The kubelet decodes every item of every list, and parses its annotations.
//   - The kubelet requests streams only if the feature gate CRIListStreaming is enabled,
//     and then for every list. Here a list is requested as a stream only if this list or an
//     earlier list was too large for one message.
//   - Without this feature gate, every relist above 16 MiB fails in the kubelet. Here such
//     a relist fails only if the runtime does not support streams, with ErrTooLarge.
//
// The baseline is kubelet 1.36. The messages of both lists are the same in cri-api v0.36
// and v0.37. Fields of a newer runtime that the cri-api of this build does not know are
// preserved and compared like all others.
//
// # Testing your code with it
//
// Code that accepts the interface above needs no Lister in its tests: any fake with these
// methods works, such as the Node of package fakecri. To include the Lister in a test,
// serve that node on a unix socket. A stub of the connection does not work if it bypasses
// the codec that the Lister sets for each call.
package wirelist
