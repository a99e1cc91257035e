// Package machine opens the resources that minimal-agent needs: a CRI runtime, which may be
// simulated in memory, the folder for the agent's files, and the capabilities of the host.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
	"github.com/kubeparts/kubeparts/fakecri"
)

// Machine is the runtime, the folder and the host of the agent. Create it with [Open]. Its fields
// do not change later.
type Machine struct {
	// Runtime is a client that is connected to Endpoint. Version is the runtime's response to the
	// first call.
	Runtime  *cri.Client
	Version  *runtimeapi.VersionResponse
	Endpoint string
	// RootDir is the folder for the agent's files, PodLogs the folder of the containers' logs,
	// and ContainerLogs the folder with links to the logs.
	RootDir, PodLogs, ContainerLogs string

	settings settings.Settings
	log      *slog.Logger
	fake     *fakecri.Node    // nil with a real runtime
	network  *fakecri.Network // the network of fake's pods
	closers  []func() error   // called in reverse order
}

// Dependencies contains the functions and options that [Open] needs from the program. All fields
// except DialOptions are required.
type Dependencies struct {
	// Print prints a line. Open calls it once, with the name and the endpoint of the runtime.
	Print func(format string, args ...any)
	// DialOptions are the options of the connection to the runtime.
	DialOptions []grpc.DialOption
	Logger      *slog.Logger
}

// Open creates the agent's folder and connects to the runtime that the settings name. The embedded
// runtime runs until Close is called. Open returns an error if a kubelet on this host uses the same
// socket. Errors name the flag or the socket.
func Open(ctx context.Context, o settings.Settings, uses Dependencies) (_ *Machine, err error) {
	m := &Machine{RootDir: o.RootDir, settings: o, log: uses.Logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := m.openRoot(); err != nil {
		return nil, err
	}
	m.Endpoint = o.ContainerRuntimeEndpoint
	switch m.Endpoint {
	case kubeletconfig.EmbeddedEndpoint:
		if m.Endpoint, err = m.serveEmbedded(ctx); err != nil {
			return nil, err
		}
	case kubeletconfig.AutoEndpoint:
		if m.Endpoint, err = firstLive(ctx, wellKnownEndpoints); err != nil {
			return nil, err
		}
	}
	if m.Runtime, m.Version, err = connect(ctx, m.Endpoint, uses.DialOptions...); err != nil {
		return nil, err
	}
	m.closers = append(m.closers, m.Runtime.Close)
	if m.fake != nil {
		uses.Print("using the embedded runtime at %s: its containers are simulated; --cri-endpoint selects a real runtime", m.Endpoint)
		return m, nil
	}
	if err := checkNoKubelet("/proc", strings.TrimPrefix(m.Endpoint, "unix://")); err != nil {
		return nil, err
	}
	uses.Print("using runtime %s %s at %s", m.Version.GetRuntimeName(), m.Version.GetRuntimeVersion(), m.Endpoint)
	return m, nil
}

// Close closes everything that Open has opened, in reverse order.
func (m *Machine) Close() error {
	var errs []error
	for _, c := range slices.Backward(m.closers) {
		errs = append(errs, c())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// openRoot creates the agent's folder. If the settings have no root folder, openRoot creates a
// temporary folder, which Close removes.
func (m *Machine) openRoot() error {
	if m.RootDir == "" {
		dir, err := os.MkdirTemp("", "minimal-agent-")
		if err != nil {
			return err
		}
		m.RootDir = dir
		m.closers = append(m.closers, func() error { return os.RemoveAll(dir) })
	}
	if err := os.MkdirAll(m.RootDir, 0o755); err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	m.PodLogs = cmp.Or(m.settings.PodLogsDir, filepath.Join(m.RootDir, "logs", "pods"))
	m.ContainerLogs = filepath.Join(m.RootDir, "logs", "containers")
	if m.settings.PodLogsDir != "" {
		m.ContainerLogs = containergc.DefaultContainerLogs
	}
	return nil
}

// Host returns the capabilities of this host. With the embedded runtime, it returns the
// capabilities of the simulated host.
func (m *Machine) Host() (*host.Host, error) {
	if m.fake != nil {
		h := fakehost.New(m.fake)
		h.Dial = m.network.Dial
		return h, nil
	}
	o, policy := m.settings, m.settings.Policy
	c := host.LocalConfig{
		Runtime: m.Runtime, Images: m.Runtime, NodeName: o.NodeName,
		Root: m.RootDir, PodLogs: m.PodLogs, ResolvConf: o.ResolverConfig, NoLookups: o.ResolverConfig == "",
		Thresholds: policy.Eviction.Thresholds, VolumePeriod: policy.VolumePeriod, UsageEvents: policy.UsageEvents,
		Logger: m.log,
	}
	if policy.Cgroups != nil {
		c.PodsCgroup = path.Join("/", policy.Cgroups.Parent, "kubepods")
	}
	return host.Local(c)
}
