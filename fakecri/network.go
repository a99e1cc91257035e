package fakecri

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// Network is a network in memory. Set its Listen method as [Config].Listen and use its Dial
// method for probes. Programs are then reachable at the addresses of their pods, only
// through Dial. No socket is opened. The zero value is ready to use. All methods may be
// called concurrently. A Network must not be copied.
type Network struct {
	mu   sync.Mutex
	open map[string]*bufconn.Listener // by address
}

// connBuffer is the size of a connection's buffer in each direction, in bytes.
const connBuffer = 64 << 10

// Listen listens on the address, which has a host and a port, until the listener is closed.
func (n *Network) Listen(network, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[address] != nil {
		return nil, opError("listen", network, address, os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	if n.open == nil {
		n.open = map[string]*bufconn.Listener{}
	}
	l := bufconn.Listen(connBuffer)
	n.open[address] = l
	return &networkListener{Listener: l, network: n, address: address}, nil
}

// Dial connects to the listener on the address. If the address has no listener, Dial
// connects to the listener on 127.0.0.1 with the same port, where programs of pods on the
// host's network listen. If that address has no listener either, the connection is refused.
// Dial never connects to a listener outside the Network.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.open[address]
	if _, port, err := net.SplitHostPort(address); l == nil && err == nil {
		l = n.open[net.JoinHostPort(hostAddress, port)]
	}
	n.mu.Unlock()
	if l == nil {
		return nil, opError("dial", network, address, os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, opError("dial", network, address, err)
	}
	return conn, nil
}

// networkListener is a listener of a Network. Close removes the listener from the Network.
type networkListener struct {
	net.Listener
	network *Network
	address string
	closing sync.Once
}

// Close closes the listener. It may be called again.
func (l *networkListener) Close() error {
	l.closing.Do(func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.open, l.address)
	})
	return l.Listener.Close()
}

// namedAddr is an address of a Network.
type namedAddr struct{ network, address string }

// Network implements [net.Addr].
func (a namedAddr) Network() string { return a.network }

// String implements [net.Addr].
func (a namedAddr) String() string { return a.address }

func opError(op, network, address string, err error) error {
	return &net.OpError{Op: op, Net: network, Addr: namedAddr{network, address}, Err: err}
}
