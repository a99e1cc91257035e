package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/kubeparts/kubeparts/fakecri"
)

// Server serves the streams of one node. Create it with [New], set its Streamer in the
// node's config, and call [Server.Serve].
type Server struct {
	address string
	server  streaming.Server // nil until Streamer is called
}

// New returns a server. address is the HOST:PORT in the URLs of the server. Clients must be
// able to reach the server at this address.
func New(address string) *Server { return &Server{address: address} }

// Streamer connects the server with a node. Set it as fakecri.Config.Streamer. It returns
// an error if the server is already connected with a node.
func (s *Server) Streamer(n *fakecri.Node) (fakecri.Streamer, error) {
	if s.server != nil {
		return nil, errors.New("streaming: the server serves another node already")
	}
	cfg := streaming.DefaultConfig
	cfg.Addr = s.address
	cfg.BaseURL = &url.URL{Scheme: "http", Host: s.address}
	server, err := streaming.NewServer(cfg, node{n})
	if err != nil {
		return nil, fmt.Errorf("streaming: %w", err)
	}
	s.server = server
	return server, nil
}

// ServeHTTP serves the URLs of streams. Before Streamer was called, it responds with 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.server == nil {
		http.NotFound(w, r)
		return
	}
	s.server.ServeHTTP(w, r)
}

// node is a fakecri.Node with the methods that k8s.io/cri-streaming requires of a runtime.
type node struct{ *fakecri.Node }

// Exec runs a command of the container's program.
func (n node) Exec(ctx context.Context, id string, cmd []string, stdin io.Reader, stdout, stderr io.WriteCloser,
	_ bool, sizes <-chan remotecommand.TerminalSize,
) error {
	return n.ExecStream(ctx, id, cmd, stdio(stdin, stdout, stderr, sizes))
}

// Attach streams the output of the container.
func (n node) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.WriteCloser,
	_ bool, sizes <-chan remotecommand.TerminalSize,
) error {
	return n.AttachStream(ctx, id, stdio(stdin, stdout, stderr, sizes))
}

// PortForward connects the stream with a port of the pod.
func (n node) PortForward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	return n.PortForwardStream(ctx, sandboxID, port, stream)
}

// stdio returns the streams of a client.
func stdio(stdin io.Reader, stdout, stderr io.WriteCloser, sizes <-chan remotecommand.TerminalSize) fakecri.Stdio {
	return fakecri.Stdio{
		Stdin: stdin, Stdout: writer(stdout), Stderr: writer(stderr),
		NextSize: func(ctx context.Context) (fakecri.TerminalSize, bool) {
			select {
			case size, ok := <-sizes:
				return fakecri.TerminalSize{Columns: size.Width, Rows: size.Height}, ok
			case <-ctx.Done():
				return fakecri.TerminalSize{}, false
			}
		},
	}
}

// writer returns w, or a nil interface if w is nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}
