package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/cri"
)

// connectTimeout is the maximum time for a runtime to accept a connection and answer.
const connectTimeout = 5 * time.Second

// wellKnownEndpoints are the default endpoints of runtimes.
var wellKnownEndpoints = []string{
	"unix:///run/containerd/containerd.sock",
	"unix:///run/crio/crio.sock",
	"unix:///run/cri-dockerd.sock",
}

// connect connects to a runtime and returns a client and the runtime's version.
func connect(ctx context.Context, endpoint string, with ...grpc.DialOption) (*cri.Client, *runtimeapi.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	// Dial the socket first: if no runtime listens, the error of the dial is clearer than
	// the error of gRPC.
	probe, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the CRI runtime at %s: %w", endpoint, err)
	}
	_ = probe.Close()
	client, err := cri.New(cri.Config{Endpoint: endpoint, DialOptions: with})
	if err != nil {
		return nil, nil, err
	}
	version, err := client.Version(ctx, "v1")
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect to the CRI runtime at %s: %w", endpoint, err), client.Close())
	}
	return client, version, nil
}

// firstLive returns the first endpoint on which a runtime answers.
func firstLive(ctx context.Context, endpoints []string) (string, error) {
	var errs []error
	for _, e := range endpoints {
		client, _, err := connect(ctx, e)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return e, client.Close()
	}
	return "", fmt.Errorf("no CRI runtime answers on a well-known socket:\n%w", errors.Join(errs...))
}
