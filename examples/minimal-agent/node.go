package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/filelock"
)

// node is what the agent runs on: a runtime, and a folder of its own.
type node struct {
	cri                         *cri.Client
	rootDir                     string
	endpoint                    string
	runtimeName, runtimeVersion string
	closers                     []func() error // in the order of opening
	fake                        *fakecri.Node  // nil with a real runtime
	dial                        dialer         // of probes and hooks: reaches the programs of fake; nil with a real runtime
	metrics                     *exporter
}

// A dialer makes connections as [net.Dialer.DialContext] does.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// close gives everything back, last opened first.
func (n *node) close() error {
	var errs []error
	for _, c := range slices.Backward(n.closers) {
		errs = append(errs, c())
	}
	n.closers = nil
	return errors.Join(errs...)
}

// openNode connects to the runtime that the options name, and says on the console
// which one it is. The embedded runtime lives until close.
func openNode(ctx context.Context, o options, out *console, m *exporter) (_ *node, err error) {
	n := &node{rootDir: o.rootDir, metrics: m}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if err := n.openRoot(); err != nil {
		return nil, err
	}
	endpoint := o.ContainerRuntimeEndpoint
	switch endpoint {
	case kubeletconfig.EmbeddedEndpoint:
		if endpoint, err = n.serveEmbedded(ctx); err != nil {
			return nil, err
		}
	case kubeletconfig.AutoEndpoint:
		if endpoint, err = firstLive(ctx, wellKnownEndpoints); err != nil {
			return nil, err
		}
	}
	client, version, err := connect(ctx, endpoint, grpc.WithUnaryInterceptor(m.CallObserver()))
	if err != nil {
		return nil, err
	}
	n.cri, n.endpoint = client, endpoint
	n.runtimeName, n.runtimeVersion = version.GetRuntimeName(), version.GetRuntimeVersion()
	n.closers = append(n.closers, client.Close)
	if o.ContainerRuntimeEndpoint != kubeletconfig.EmbeddedEndpoint {
		if err := kubeletOn("/proc", strings.TrimPrefix(endpoint, "unix://")); err != nil {
			return nil, err
		}
		out.say("runtime %s %s on %s", version.GetRuntimeName(), version.GetRuntimeVersion(), endpoint)
		return n, nil
	}
	out.say("embedded runtime in memory on %s: nothing real runs; --cri-endpoint names a real one", endpoint)
	return n, nil
}

// openRoot makes the agent's folder and keeps other agents out of it. Without a
// name it is a temporary one that goes with the agent.
func (n *node) openRoot() error {
	if n.rootDir == "" {
		dir, err := os.MkdirTemp("", "minimal-agent-")
		if err != nil {
			return err
		}
		n.rootDir = dir
		n.closers = append(n.closers, func() error { return os.RemoveAll(dir) })
	}
	if err := os.MkdirAll(n.rootDir, 0o755); err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	unlock, err := filelock.Lock(filepath.Join(n.rootDir, "lock"))
	if err != nil {
		return fmt.Errorf("--root-dir %s: %w", n.rootDir, err)
	}
	n.closers = append(n.closers, unlock)
	return nil
}
