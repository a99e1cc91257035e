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

// Server serves the streams of one node. Make it with [New], give its Streamer to
// the node, and then serve it.
type Server struct {
	address string
	server  streaming.Server // nil until Streamer was called
}

// New returns a server whose URLs lead to address, HOST:PORT, where the caller
// serves it.
func New(address string) *Server { return &Server{address: address} }

// Streamer ties the server to a node; it is made to be a fakecri.Config's
// Streamer. A server serves one node.
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

// ServeHTTP answers the URLs. Before Streamer was called there are none.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.server == nil {
		http.NotFound(w, r)
		return
	}
	s.server.ServeHTTP(w, r)
}

// node is a fakecri.Node as k8s.io/cri-streaming wants a runtime.
type node struct{ *fakecri.Node }

// Exec runs a command of the container's program.
func (n node) Exec(ctx context.Context, id string, cmd []string, _ io.Reader, stdout, stderr io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize,
) error {
	return n.ExecStream(ctx, id, cmd, writer(stdout), writer(stderr))
}

// Attach shows what the container writes.
func (n node) Attach(ctx context.Context, id string, _ io.Reader, stdout, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize,
) error {
	return n.AttachStream(ctx, id, writer(stdout))
}

// PortForward joins the stream to a port of the pod.
func (n node) PortForward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	return n.PortForwardStream(ctx, sandboxID, port, stream)
}

// writer keeps a stream that was not asked for from becoming a writer that is not
// nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}
