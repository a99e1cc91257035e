package pleg

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Lister lists all sandboxes and containers, a literal subset of cri.RuntimeService.
// Where something is faster at that than the CRI client is, [Config].Lister takes it:
// pleg/wirelist does not decode what has not changed.
//
// The generator reads answers while it relists and keeps no message of them, but
// strings of the objects that are new to it. It modifies nothing, so a lister may
// return the same messages, and the same slice, again.
type Lister interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// ErrTooLarge says that the runtime has more sandboxes or containers than fit into
// one message, 16 MiB with most: the code is ResourceExhausted. No repetition
// helps, but fewer dead containers do, or a [Lister] that streams. Until then the
// generator is degraded: it goes around the pods that it knows with filtered lists,
// [Generator.RequestRelist], the hints and [Generator.RelistPod] work as ever, and
// after Threshold [Generator.Healthy] returns an error that wraps this one.
var ErrTooLarge = errors.New("the list does not fit into one message")

// explain adds [ErrTooLarge] to the error of a list where that is the reason.
func explain(err error) error {
	if err == nil || grpcstatus.Code(err) != codes.ResourceExhausted {
		return err
	}
	return fmt.Errorf("%w: %w", ErrTooLarge, err)
}
