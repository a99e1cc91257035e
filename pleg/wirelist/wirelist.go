package wirelist

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrTooLarge says that a list does not fit into one message and that the runtime
// cannot send it in several. Fewer dead containers help, or a runtime that has the
// streamed lists of KEP-5825. Test for it with errors.Is; the runtime's or gRPC's
// own words are wrapped beside it.
var ErrTooLarge = errors.New("the list exceeds the largest message and the runtime does not stream lists")

// Lister lists the sandboxes and containers of a runtime like any CRI client, and
// decodes only those that differ from what it was last told. Make one with [New].
// Its methods may be called concurrently, and nothing is locked during a call.
//
// It remembers the items of the newest list of each kind: it serves one caller that
// asks for the same again and again. Another filter gets right answers too, but
// this and the next list are decoded whole.
type Lister struct {
	sandboxes  *call[*runtimeapi.PodSandbox]
	containers *call[*runtimeapi.Container]
}

// New returns a lister. Nothing is sent before the first list.
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

// ListPodSandbox returns the sandboxes that pass the filter, all if it is nil, in
// the runtime's order when there is any news. The slice and the messages may be handed
// out again by later calls, and must not be modified: an unchanged item is the same
// message, and a list with the same items the same slice, whatever order the runtime
// sends them in. They are never written to once returned.
//
// Errors are gRPC's, with their status, or [ErrTooLarge]; with one there are no items.
func (l *Lister) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return l.sandboxes.list(ctx, sandboxesBy{filter})
}

// ListContainers is [Lister.ListPodSandbox] for containers, in all states.
func (l *Lister) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return l.containers.list(ctx, containersBy{filter})
}

// sandboxesBy and containersBy are the requests for a list.
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
