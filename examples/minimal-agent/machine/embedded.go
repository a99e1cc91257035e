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
)

// DemoNode returns the configuration of the embedded runtime: it has the sample pods' images, makes up any
// other that is asked for, and writes logs where a runtime does.
func DemoNode() fakecri.Config {
	return fakecri.Config{
		Images:    fakecri.DemoImages(),
		Programs:  fakecri.DemoPrograms(),
		PullAny:   true,
		WriteLogs: true,
	}
}

// serveEmbedded starts a CRI node in memory and returns its address.
func (m *Machine) serveEmbedded(ctx context.Context) (string, error) {
	// Pods have addresses that exist in memory only. To ask these on the host's network
	// would reach somebody else's.
	network := new(fakecri.Network)
	cfg := DemoNode()
	cfg.Listen, cfg.PodNetwork = network.Listen, netip.MustParsePrefix("10.88.0.0/16")
	fake, err := fakecri.New(cfg)
	if err != nil {
		return "", err
	}
	m.fake, m.network = fake, network
	m.closers = append(m.closers, func() error { fake.Shutdown(); return nil })
	listener, remove, err := ListenTemporary()
	if err != nil {
		return "", fmt.Errorf("embedded runtime: %w", err)
	}
	m.closers = append(m.closers, remove)
	// It serves on while the agent, whose context this is, takes pods down.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- fake.Serve(serving, listener) }()
	m.closers = append(m.closers, func() error { stop(); return <-served })
	return "unix://" + listener.Addr().String(), nil
}

// ListenTemporary listens on a unix socket in a temporary folder, which remove
// removes. The folder is one of its own because the path of a socket must be
// short, and other folders' may not be.
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
