//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// containerdVar is the environment variable with the version of the bed's containerd:
	// 2.4, 1.7 or 1.6.
	containerdVar = "KUBEPARTS_E2E_CONTAINERD"
	// partVar is the environment variable that divides the sizes of tests that measure. The
	// default is 1.
	partVar = "KUBEPARTS_E2E_PART"
	// completeVersion is the containerd version with every feature: no test may be skipped on
	// it.
	completeVersion = "2.4"
	// sharedEventsVersion is the containerd version that delivers each event to only one of
	// its clients.
	sharedEventsVersion = "1.7"
)

// containerdVersion returns the version of containerd that the tests run on.
func containerdVersion() string {
	if v := os.Getenv(containerdVar); v != "" {
		return v
	}
	return completeVersion
}

// part returns the part of a size that tests use: see [partVar]. It is at least 1.
func part(t *testing.T, size int) int {
	t.Helper()
	divisor, err := strconv.Atoi(cmp.Or(os.Getenv(partVar), "1"))
	require.NoError(t, err, partVar)
	require.Positive(t, divisor, partVar)
	return max(1, size/divisor)
}

// feature is a feature of the runtime that a test needs and that some runtimes lack.
type feature struct {
	name string
	// in reports whether the runtime of b has the feature.
	in func(b *testbed) (bool, error)
}

var (
	containerEvents = feature{"container events", func(b *testbed) (bool, error) { return b.streamsEvents, nil }}
	runtimeHandlers = feature{"a list of its runtime handlers", func(b *testbed) (bool, error) {
		handlers, err := b.handlers()
		return len(handlers) > 0, err
	}}
	userNamespaces = feature{"user namespaces", func(b *testbed) (bool, error) {
		handlers, err := b.handlers()
		return slices.ContainsFunc(handlers, func(h *runtimeapi.RuntimeHandler) bool {
			return h.GetName() == newerHandler && h.GetFeatures().GetUserNamespaces()
		}), err
	}}
	// The CRI has no field that reports this feature.
	imageVolumes = feature{"image volumes", isComplete}
	sameAnswers  = feature{"the error codes and defaults of containerd " + completeVersion + ", which the fake has", isComplete}
)

func isComplete(b *testbed) (bool, error) { return b.version == completeVersion, nil }

// needs skips the test if the runtime lacks the feature, but fails the test if that runtime
// must have all features.
func needs(t *testing.T, f feature) {
	t.Helper()
	has, err := f.in(bed)
	require.NoError(t, err)
	if has {
		return
	}
	require.NotEqual(t, completeVersion, bed.version, "containerd lacks %s, and no test may be skipped on this version", f.name)
	t.Skipf("%s needs %s, which containerd %s lacks", t.Name(), f.name, bed.version)
}

func (b *testbed) handlers() ([]*runtimeapi.RuntimeHandler, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	status, err := b.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	return status.GetRuntimeHandlers(), err
}

// eventsDuring calls act, which must cause an event, and reports whether the runtime has
// a stream of events.
func (b *testbed) eventsDuring(act func() error) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*callTimeout)
	defer cancel()
	stream, err := b.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return false, err
	}
	if err := act(); err != nil {
		return false, err
	}
	_, err = stream.Recv()
	if grpcstatus.Code(err) == codes.Unimplemented {
		return false, nil
	}
	return err == nil, err
}
