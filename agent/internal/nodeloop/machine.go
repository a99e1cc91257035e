package nodeloop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// factsAge is the maximum age of the facts in a pod's configuration and status. Newer facts are not
// read again, because a sync of a pod uses the facts several times, and each read opens files.
const factsAge = time.Second

// machine gets the facts of the host and caches the last facts.
type machine struct {
	facts func(context.Context) (host.Facts, error)
	clock clock.PassiveClock

	mu   sync.Mutex
	ctx  context.Context // the context of Run, because podrunner gets facts without a context; nil before Run
	last host.Facts
	at   time.Time // start of the last call of facts
	err  error     // of the last call of facts
}

// begin sets the context for all later reads of the facts.
func (m *machine) begin(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ctx = ctx
}

// now returns the stored facts. If the last read is older than factsAge, it reads the facts first.
// Before Run, all facts are unknown.
func (m *machine) now() host.Facts {
	m.mu.Lock()
	ctx, last, fresh := m.ctx, m.last, m.clock.Since(m.at) < factsAge
	m.mu.Unlock()
	if ctx == nil || fresh {
		return last
	}
	return m.read(ctx)
}

// read gets the facts from the host, and returns the facts that it stores. It also stores facts
// that the host returned with an error. But if these facts have no capacity, and the earlier facts
// have a capacity, it keeps the earlier facts.
func (m *machine) read(ctx context.Context) host.Facts {
	began := m.clock.Now()
	facts, err := m.facts(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return m.last // the agent stops: the error is caused by ctx
	}
	m.at, m.err = began, err
	if err == nil || facts.Capacity != nil || m.last.Capacity == nil {
		m.last = facts
	}
	return m.last
}

// problem returns why facts are missing, or nil if all facts are known.
func (m *machine) problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return nil
	}
	return fmt.Errorf("could not read all facts of the machine: %w", m.err)
}

// Facts returns the properties of the node that the configuration of pods needs. The facts of the
// machine were read at most a second ago. Before Run, the facts of the machine are unknown.
func (l *Loop) Facts() podrunner.Facts {
	h := l.machine.now()
	features, handler := l.runtime.features()
	var networkErr error // nil before the first response of the runtime: its network may be ready
	if answer := l.runtime.answers().Status; answer != nil {
		networkErr = nodestatus.NetworkProblem(answer)
	}
	f := podrunner.Facts{
		Name:                l.cfg.NodeName,
		MemoryCapacityBytes: h.Capacity.Memory().Value(),
		Allocatable:         l.Node().Status.Allocatable,
		Objects:             l.cfg.Objects,
		Services:            l.cfg.Services,
		NetworkErr:          networkErr,
		DNS:                 dnsOf(h),
		HostsFile:           h.Hosts,
		Cgroups:             podrunner.Cgroups{V2: h.CgroupV2},
		AppArmor:            h.AppArmor,
		SELinux:             h.SELinux,
		RuntimeHandler:      l.cfg.RuntimeHandler,
		Handler:             handler,
		Runtime:             features,
	}
	for _, ip := range h.Addresses {
		f.IPs = append(f.IPs, ip.String())
	}
	if f.RuntimeHandler == nil {
		f.RuntimeHandler = l.runtime.handlerOf
	}
	return f
}

// dnsOf returns the machine's DNS configuration. If resolv.conf was not read yet, it returns an
// empty configuration, and the runtime copies the file.
func dnsOf(h host.Facts) podrunner.DNS {
	switch {
	case h.NoLookups:
		return podrunner.DNS{NoLookups: true}
	case h.ResolvConfErr != nil:
		return podrunner.DNS{HostErr: h.ResolvConfErr}
	case h.ResolvConf == nil:
		return podrunner.DNS{}
	}
	conf, err := podrunner.ParseResolvConf(string(h.ResolvConf))
	return podrunner.DNS{Host: &conf, HostErr: err}
}
