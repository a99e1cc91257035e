// Package wirelist lists the sandboxes and containers of a CRI runtime without
// decoding what has not changed.
//
// # What it does
//
// An agent asks for the same two lists every second, and mostly gets what it got
// before: decoding them is most of the cost of an idle node. A [Lister] reads the
// answers as bytes. It remembers the messages of the newest lists, each with a
// digest of its bytes; an item with the same id, state and digest is handed out as
// the message that it was, and only the others are decoded, by the ordinary
// decoder. Labels and annotations may come in any order, and so may items.
//
// # What you supply
//
// A connection to the runtime, usually the one that the CRI client has:
//
//	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", …)
//	lists, err := wirelist.New(wirelist.Config{Conn: conn})
//
// What is left of the cost is gRPC's. Dialled with grpc.WithStaticStreamWindowSize
// and grpc.WithStaticConnWindowSize of some MiB, it need not measure the bandwidth of
// a socket, which spares a few allocations.
//
// Lister has two methods of cri.RuntimeService of k8s.io/cri-api, with their
// signatures, so it goes wherever only lists are asked for. The user declares
//
//	type Lister interface {
//		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
//		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
//	}
//
// and takes either a Lister or any CRI client. That the answers are whole messages,
// not a lean type of our own, is what keeps one set of rules about pods and labels,
// the user's, whichever it is. It costs memory: about what one ordinary list costs
// while it is looked at, 4.5 MB for 500 pods, is kept.
//
// Give it to one user, who asks with one filter, and let lists of a single pod go
// through the ordinary client: a list with another filter is right, but it takes
// the place of what is remembered.
//
// # What it guarantees
//
//  1. The items are those of the ordinary decoder, field by field, unknown ones
//     included, and what that refuses is refused. So is their order, but for 3. That
//     two different items with one id and one state are taken for the same has a
//     chance of one in 2^64 per change; two states never are.
//  2. What is returned is never written to again. Callers must not write to it
//     either, as it is handed out again.
//  3. A list with the items of the one before is the same slice, in the same order
//     even if it came in another, as containerd's do. It costs no allocation but
//     the call's.
//  4. With an error there is no list. What was remembered remains.
//  5. A list too large for one message is asked for as a stream (KEP-5825), from
//     then on at once, until it is half as large. A stream that breaks is an error,
//     not half a list. If the runtime has no streams the error is [ErrTooLarge],
//     and every list is tried anew.
//  6. On the wire a list is the call that an ordinary client makes, so that containerd
//     and CRI-O accept it as the first one of a connection.
//
// # Goroutines and locking
//
// There are no goroutines but those of the connection. A lock for each kind of list
// is held while an answer is read, not while it is awaited, so lists may be asked
// for at the same time. A call ends when its context does.
//
// # Differences from the kubelet
//
//   - The kubelet decodes every item of every list, and parses its annotations.
//   - It asks for streams only behind the feature gate CRIListStreaming, and then
//     always. Here a list that fits is asked for in one message.
//   - Above 16 MiB each of its relists fails; here that has a name.
//
// The baseline is kubelet 1.36. The messages of both lists are the same in cri-api
// v0.36 and v0.37. A newer runtime's fields, unknown to the cri-api of this build,
// are kept and compared like all others.
//
// # Testing your code with it
//
// Code that takes the interface above needs no Lister in its tests: any fake with
// these methods will do, such as the Node of package fakecri. To have the Lister in
// the loop, let that node serve a unix socket. A connection that fills in answers
// by itself, without asking the codec of the call, does not work.
package wirelist
