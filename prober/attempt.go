package prober

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// attempt probes once, by the handler that the spec has.
func (m *Manager) attempt(ctx context.Context, p *probe, r *run) finding {
	if r.spec.Exec == nil {
		m.endCommand(p) // the spec had an exec probe before
	}
	switch s := r.spec; {
	case s.Exec != nil:
		return m.execProbe(ctx, p, r)
	case s.HTTPGet != nil:
		return m.httpProbe(ctx, r)
	case s.TCPSocket != nil:
		return m.tcpProbe(ctx, r)
	case s.GRPC != nil:
		return m.grpcProbe(ctx, r)
	default:
		return finding{outcome: Errored, err: fmt.Errorf("missing probe handler for %s_%s(%s):%s",
			r.pod.Name, r.pod.Namespace, r.pod.UID, r.container.Name)}
	}
}

// address returns where to connect to.
func address(host string, port int, t *Target) string {
	if host == "" {
		host = t.PodIP
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// tcpProbe connects, which is all.
func (m *Manager) tcpProbe(ctx context.Context, r *run) finding {
	port, err := podspec.PortNumber(r.spec.TCPSocket.Port, r.container)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, r.timing.timeout)
	defer cancel()
	conn, err := m.dial(ctx, "tcp", address(r.spec.TCPSocket.Host, port, &r.target))
	if err != nil {
		return finding{outcome: Failed, output: err.Error()}
	}
	_ = conn.Close() // there is nothing more to come
	return finding{outcome: Succeeded}
}

// dial makes a connection that is closed by a reset, which leaves no socket in
// TIME_WAIT. Probes are many, and ports are not.
func (m *Manager) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.cfg.Dial(ctx, network, address)
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // if it cannot, it is closed the slow way
	}
	return conn, err
}

// grpcProbe asks the pod's own address, there being no host in the spec.
func (m *Manager) grpcProbe(ctx context.Context, r *run) finding {
	if m.cfg.GRPC == nil {
		return finding{outcome: Errored, err: fmt.Errorf("no handler for gRPC probes")}
	}
	g := r.spec.GRPC
	if g.Port < 1 || g.Port > 65535 {
		return finding{outcome: Errored, err: fmt.Errorf("port %d is not a number from 1 to 65535", g.Port)}
	}
	request := GRPCRequest{
		Address: address("", int(g.Port), &r.target), TLS: r.opts.GRPCTLS, Fresh: r.opts.FreshConnection,
		Timeout: r.timing.timeout,
	}
	if g.Service != nil {
		request.Service = *g.Service
	}
	ctx, cancel := context.WithTimeout(ctx, r.timing.timeout)
	defer cancel()
	outcome, output := m.cfg.GRPC.Check(ctx, request)
	return finding{outcome: outcome, output: output}
}
