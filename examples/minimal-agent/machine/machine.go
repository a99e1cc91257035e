// Package machine is what minimal-agent runs on: a runtime, which may be one in memory, a
// folder for the agent's files, and the machine below them.
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

// Machine is what the agent runs on. Make it with [Open]. Its fields are not changed later.
type Machine struct {
	// Runtime has answered with Version at Endpoint.
	Runtime  *cri.Client
	Version  *runtimeapi.VersionResponse
	Endpoint string
	// RootDir is the folder of the agent's files, PodLogs that of the containers' logs, and
	// ContainerLogs the one with links to them.
	RootDir, PodLogs, ContainerLogs string

	settings settings.Settings
	log      *slog.Logger
	fake     *fakecri.Node    // nil with a real runtime
	network  *fakecri.Network // of the programs of fake
	closers  []func() error   // in the order of opening
}

// Uses is what [Open] needs of the program. All fields are required but DialOptions.
type Uses struct {
	// Say prints a line: which runtime it is.
	Say func(format string, args ...any)
	// DialOptions are for the connection to the runtime.
	DialOptions []grpc.DialOption
	Logger      *slog.Logger
}

// Open connects to the runtime that the settings name and makes the agent's folder. The
// embedded runtime lives until Close. The error names the flag or the socket. A socket that a
// kubelet serves is refused.
func Open(ctx context.Context, o settings.Settings, uses Uses) (_ *Machine, err error) {
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
		uses.Say("embedded runtime in memory on %s: nothing real runs; --cri-endpoint names a real one", m.Endpoint)
		return m, nil
	}
	if err := kubeletOn("/proc", strings.TrimPrefix(m.Endpoint, "unix://")); err != nil {
		return nil, err
	}
	uses.Say("runtime %s %s on %s", m.Version.GetRuntimeName(), m.Version.GetRuntimeVersion(), m.Endpoint)
	return m, nil
}

// Close gives everything back, what was opened last first.
func (m *Machine) Close() error {
	var errs []error
	for _, c := range slices.Backward(m.closers) {
		errs = append(errs, c())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// openRoot makes the agent's folder. Without a name it is a temporary one, which Close removes.
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

// Host returns the capabilities of the machine: those of this one, or those of the embedded
// runtime's.
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
