package wirelist

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrTooLarge means that a list does not fit into one message and that the runtime does
// not support streamed lists (KEP-5825). To fix it, remove dead containers or use a
// runtime with streamed lists. Test for it with errors.Is; the error also wraps the error
// of the runtime or of gRPC.
var ErrTooLarge = errors.New("the list exceeds the largest message and the runtime does not stream lists")

// Lister lists the sandboxes and containers of a runtime like any CRI client, but
// decodes only the items that have changed since the last list. Create it with [New].
// Its methods are safe for concurrent use. A call holds a lock while it reads a response,
// but not while it waits for the response.
//
// A Lister stores the items of the newest list of each kind. It is meant for one caller
// that always uses the same filter. A list with another filter is correct too, but the
// Lister then deletes the stored items that this list does not contain and must decode
// them again in a later list.
type Lister struct {
	sandboxes  *call[*runtimeapi.PodSandbox]
	containers *call[*runtimeapi.Container]
}

// New returns a lister, or an error if cfg is invalid. The lister sends no request before
// the first list.
func New(cfg Config) (*Lister, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("wirelist: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Lister{
		sandboxes: newCall(cfg, sandboxLayout(),
			runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName),
		containers: newCall(cfg, containerLayout(),
			runtimeapi.RuntimeService_ListContainers_FullMethodName, runtimeapi.RuntimeService_StreamContainers_FullMethodName),
	}, nil
}

// ListPodSandbox returns the sandboxes that match the filter, or all sandboxes if the
// filter is nil. The caller must not modify the slice or the messages, because later calls
// may return them again. For an unchanged item, the lister returns the message that the
// previous list returned. If all items are unchanged, it returns the previous slice in the
// previous order, even if the runtime's order differs. Otherwise the order is the runtime's.
// The lister never modifies messages and slices that it has returned.
//
// Errors are gRPC status errors or [ErrTooLarge]. With an error, ListPodSandbox returns no
// items.
func (l *Lister) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return l.sandboxes.list(ctx, sandboxesBy{filter})
}

// ListContainers is like [Lister.ListPodSandbox], for containers in all states.
func (l *Lister) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return l.containers.list(ctx, containersBy{filter})
}

// sandboxesBy and containersBy create the requests for a list.
type (
	sandboxesBy  struct{ filter *runtimeapi.PodSandboxFilter }
	containersBy struct{ filter *runtimeapi.ContainerFilter }
)

func (b sandboxesBy) single() proto.Message {
	return &runtimeapi.ListPodSandboxRequest{Filter: b.filter}
}

func (b sandboxesBy) stream() proto.Message {
	return &runtimeapi.StreamPodSandboxesRequest{Filter: b.filter}
}

func (b containersBy) single() proto.Message {
	return &runtimeapi.ListContainersRequest{Filter: b.filter}
}

func (b containersBy) stream() proto.Message {
	return &runtimeapi.StreamContainersRequest{Filter: b.filter}
}
