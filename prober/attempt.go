package prober

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// attempt runs the probe once, by whatever handler its spec has but exec.
func (m *Manager) attempt(ctx context.Context, j *job) finding {
	switch s := j.spec; {
	case s.HTTPGet != nil:
		return m.httpProbe(ctx, j)
	case s.TCPSocket != nil:
		return m.tcpProbe(ctx, j)
	case s.GRPC != nil:
		return m.grpcProbe(ctx, j)
	default:
		return finding{outcome: Errored, err: fmt.Errorf("missing probe handler for %s_%s(%s):%s",
			j.pod.Name, j.pod.Namespace, j.pod.UID, j.container.Name)}
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
func (m *Manager) tcpProbe(ctx context.Context, j *job) finding {
	port, err := podspec.PortNumber(j.spec.TCPSocket.Port, j.container)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	conn, err := m.cfg.Dial(ctx, "tcp", address(j.spec.TCPSocket.Host, port, &j.target))
	if err != nil {
		return finding{outcome: Failed, output: err.Error()}
	}
	abort(conn)
	return finding{outcome: Succeeded}
}

// abort closes a connection by a reset, which leaves no socket in TIME_WAIT.
// Probes are many, and ports are not.
func abort(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // if it cannot, it is closed the slow way
	}
	_ = conn.Close() // there is nothing more to come
}

// grpcProbe asks the pod's own address, there being no host in the spec.
func (m *Manager) grpcProbe(ctx context.Context, j *job) finding {
	if m.cfg.GRPC == nil {
		return finding{outcome: Errored, err: fmt.Errorf("no handler for gRPC probes")}
	}
	g := j.spec.GRPC
	if g.Port < 1 || g.Port > 65535 {
		return finding{outcome: Errored, err: fmt.Errorf("port %d is not a number from 1 to 65535", g.Port)}
	}
	r := GRPCRequest{
		Address: address("", int(g.Port), &j.target), TLS: j.opts.GRPCTLS, Fresh: j.opts.FreshConnection,
		Timeout: j.timing.timeout,
	}
	if g.Service != nil {
		r.Service = *g.Service
	}
	outcome, output := m.cfg.GRPC.Check(ctx, r)
	return finding{outcome: outcome, output: output}
}
