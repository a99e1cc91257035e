package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
)

// DemoNode returns the configuration of the embedded runtime. The runtime has the images of the
// sample pods, simulates a pull of any other image, and writes container logs to files like a real
// runtime.
func DemoNode() fakecri.Config {
	return fakecri.Config{
		Images:    fakecri.DemoImages(),
		Programs:  fakecri.DemoPrograms(),
		PullAny:   true,
		WriteLogs: true,
	}
}

// serveEmbedded starts the embedded runtime on a temporary socket and returns its endpoint.
func (m *Machine) serveEmbedded(ctx context.Context) (string, error) {
	// The pods' addresses exist in memory only, because other hosts may have the same addresses
	// on the host's network.
	network := new(fakecri.Network)
	cfg := DemoNode()
	cfg.Listen, cfg.Dial, cfg.PodNetwork = network.Listen, network.Dial, netip.MustParsePrefix("10.88.0.0/16")
	// Like a real runtime, the embedded runtime serves streams on a port. A client needs the URL of
	// a stream, which is secret and valid for a minute.
	port, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("embedded runtime: %w", err)
	}
	streams := streaming.New(port.Addr().String())
	cfg.Streamer = streams.Streamer
	fake, err := fakecri.New(cfg)
	if err != nil {
		return "", errors.Join(err, port.Close())
	}
	m.serve(ctx, func(ctx context.Context) error { return streams.Serve(ctx, port) })
	m.fake, m.network = fake, network
	m.closers = append(m.closers, func() error { fake.Shutdown(); return nil })
	listener, remove, err := ListenTemporary()
	if err != nil {
		return "", fmt.Errorf("embedded runtime: %w", err)
	}
	m.closers = append(m.closers, remove)
	m.serve(ctx, func(ctx context.Context) error { return fake.Serve(ctx, listener) })
	return "unix://" + listener.Addr().String(), nil
}

// serve runs a server of the embedded runtime until Close is called. The runtime must keep running
// after ctx is done, while the agent stops its pods.
func (m *Machine) serve(ctx context.Context, run func(context.Context) error) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- run(serving) }()
	m.closers = append(m.closers, func() error { stop(); return <-served })
}

// ListenTemporary listens on a unix socket in a new temporary folder, and returns a function that
// removes the folder. It does not use the agent's folder, because the path of a socket must be
// short.
func ListenTemporary() (_ net.Listener, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "cri-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	listener, err := net.Listen("unix", filepath.Join(dir, "cri.sock"))
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return listener, remove, nil
}
