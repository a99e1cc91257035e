package cri_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves the node on a new socket until the test ends and returns its endpoint.
func serve(t *testing.T, node *fakecri.Node) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	serveAt(t, node, socket)
	return "unix://" + socket
}

func serveAt(t *testing.T, node *fakecri.Node, socket string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- node.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
}

func newNode(t *testing.T, cfg fakecri.Config) *fakecri.Node {
	t.Helper()
	node, err := fakecri.New(cfg)
	require.NoError(t, err)
	t.Cleanup(node.Shutdown)
	return node
}

func newClient(t *testing.T, cfg criclient.Config) *criclient.Client {
	t.Helper()
	c, err := criclient.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}}
}

func containerConfig(image string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: image},
	}
}
