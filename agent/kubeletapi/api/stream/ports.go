package stream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// portProtocol is the version of the protocol for port-forwards.
const portProtocol = "portforward.k8s.io"

// Ports is a connection to the ports of a pod. The caller must call Close.
type Ports struct{ conn *conn }

// DialPorts connects to the ports of a pod. The connection ends when ctx is done.
func DialPorts(ctx context.Context, c *api.Client, namespace, pod string) (*Ports, error) {
	conn, err := dial(ctx, c, path("portForward", namespace, pod), nil, portProtocol)
	if err != nil {
		return nil, err
	}
	return &Ports{conn}, nil
}

// Done returns a channel that is closed when the connection has ended, for example because the pod
// has ended.
func (p *Ports) Done() <-chan struct{} { return p.conn.served }

// Close ends all forwarded connections.
func (p *Ports) Close() { p.conn.close() }

// Forward connects a local connection with a port of the pod. Forward returns when the pod has
// closed the connection, or when a write to the local connection fails. Before it returns, it
// closes the local connection. When the local connection has no more data, Forward closes only the
// direction to the pod. The error is nil if the pod has closed the connection.
func (p *Ports) Forward(local io.ReadWriteCloser, port uint16) error {
	defer func() { _ = local.Close() }()
	p.conn.mu.Lock()
	p.conn.openCount++
	id := strconv.Itoa(p.conn.openCount)
	p.conn.mu.Unlock()
	header := http.Header{corev1.PortHeader: {strconv.Itoa(int(port))}, corev1.PortForwardRequestIDHeader: {id}}
	failure, err := p.conn.open(corev1.StreamTypeError, header)
	if err != nil {
		return err
	}
	defer p.conn.drop(failure)
	_ = failure.Close() // the client sends nothing; ignore the error: the read below also detects a broken connection
	data, err := p.conn.open(corev1.StreamTypeData, header)
	if err != nil {
		return err
	}
	defer p.conn.drop(data)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(data, local) // ignore the error: the copy in the other direction also detects a broken connection
		_ = data.Close()
	}()
	_, _ = io.Copy(local, data) // a broken local connection is no error of the pod
	_ = local.Close()           // ends the copy to the pod
	p.conn.drop(data)
	<-sent
	text, err := io.ReadAll(io.LimitReader(failure, 64<<10))
	if len(text) > 0 {
		return fmt.Errorf("forward port %d: %s", port, strings.TrimSpace(string(text)))
	}
	return err
}
