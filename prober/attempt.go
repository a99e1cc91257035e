package prober

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// attempt runs the probe once, with the handler in the spec.
func (m *Manager) attempt(ctx context.Context, p *probe, r *run) finding {
	if r.spec.Exec == nil {
		m.cancelCommand(p) // an earlier spec may have had an exec probe
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

// address returns the address to connect to. An empty host means the pod's IP.
func address(host string, port int, t *Target) string {
	if host == "" {
		host = t.PodIP
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// tcpProbe opens a connection and closes it.
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
	_ = conn.Close() // an error does not matter
	return finding{outcome: Succeeded}
}

// dial opens a connection that is closed by a reset, so that no socket stays in TIME_WAIT.
// Otherwise many probes could use up the local ports.
func (m *Manager) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.cfg.Dial(ctx, network, address)
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // if it fails, the connection is closed normally
	}
	return conn, err
}

// grpcProbe checks a service at the pod's IP; the spec of a gRPC probe has no host.
func (m *Manager) grpcProbe(ctx context.Context, r *run) finding {
	if m.cfg.GRPC == nil {
		return finding{outcome: Errored, err: fmt.Errorf("gRPC probes are not supported by this agent")}
	}
	g := r.spec.GRPC
	if g.Port < 1 || g.Port > 65535 {
		return finding{outcome: Errored, err: fmt.Errorf("port %d is not between 1 and 65535", g.Port)}
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
