package conformance

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kubeparts/kubeparts/fakecri"
)

// fakeOptions returns options for a fake node, on which the image defines the
// program.
func fakeOptions() Options {
	o := Shell("", "demo/pulled:1", "demo/missing:1")
	o.Sleeper.Image, o.Stubborn.Image = "demo/sleeper:1", "demo/stubborn:1"
	o.Completer.Image, o.Failer.Image, o.Broken.Image = "demo/completer:1", "demo/failer:1", "demo/broken:1"
	return o
}

// newFake returns a fake node with a program for each workload.
func newFake() (*fakecri.Node, error) {
	log := []string{"ready"}
	programs := map[string]fakecri.Program{
		"demo/sleeper:1": {TermExitCode: new(int32(7)), Log: log, Exec: map[string]fakecri.Exec{
			"/bin/sh -c echo out": {Stdout: "out\n"},
			"/bin/sh -c exit 4":   {ExitCode: 4},
			"sleep 100":           {Runtime: 100 * time.Second},
		}},
		"demo/stubborn:1":  {IgnoreTerm: true, Log: log},
		"demo/completer:1": {Runtime: time.Millisecond, Log: log},
		"demo/failer:1":    {Runtime: time.Millisecond, ExitCode: 3, Log: log},
		"demo/broken:1":    {StartError: "no such file or directory"},
	}
	var images []fakecri.Image
	for name := range programs {
		images = append(images, fakecri.Image{Name: name, SizeBytes: 1 << 20})
	}
	return fakecri.New(fakecri.Config{
		Images: images, Registry: []fakecri.Image{{Name: "demo/pulled:1", SizeBytes: 1 << 20}},
		Programs: programs, WriteLogs: true,
	})
}

// dialFake serves a fake node on an in-memory listener until the test ends.
func dialFake(tb testing.TB) grpc.ClientConnInterface {
	tb.Helper()
	n, err := newFake()
	require.NoError(tb, err)
	lis := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	go func() { done <- n.Serve(ctx, lis) }()
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, conn.Close())
		cancel()
		require.NoError(tb, <-done)
	})
	return conn
}
