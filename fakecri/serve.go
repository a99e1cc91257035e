package fakecri

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessageBytes is the maximum size of a message, as in containerd. A list whose response
// is larger fails.
const maxMessageBytes = 16 << 20

// Serve serves the node as a CRI runtime and image service on a listener until ctx is done,
// and then returns nil. It returns an error if the listener fails. When it returns, the
// listener is closed, and all connections, calls and goroutines have ended. A node can be
// served on several listeners.
func (n *Node) Serve(ctx context.Context, lis net.Listener) error {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(markRemote),
	)
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{n: n})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{n: n})

	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-ended:
		}
		srv.Stop()
	}()
	err := srv.Serve(&listener{Listener: lis, n: n})
	close(ended)
	<-stopped
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("fakecri: serve: %w", err)
	}
	return nil
}

// remote marks the contexts of unary calls that came over gRPC.
type remote struct{}

func markRemote(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, remote{}, true), request)
}

func isRemote(ctx context.Context) bool { return ctx.Value(remote{}) != nil }

// listener records the open connections in the node, so that a restart can close them.
type listener struct {
	net.Listener
	n *Node
}

// Accept records the connection until it is closed.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	tracked := &conn{Conn: c, n: l.n}
	l.n.conns[tracked] = struct{}{}
	return tracked, nil
}

type conn struct {
	net.Conn
	n *Node
}

// Close removes the connection from the node's open connections and closes it.
func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}
