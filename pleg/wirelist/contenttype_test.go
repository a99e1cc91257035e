package wirelist_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

// strictListener accepts connections like CRI-O, which serves gRPC and HTTP on one
// socket: a connection is closed if the content type of its first call is not exactly
// application/grpc.
type strictListener struct{ net.Listener }

func (l strictListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &strictConn{Conn: conn}
	c.check = sync.OnceValue(c.checkContentType)
	return c, nil
}

// strictConn holds back the bytes of the client until the first call was checked.
type strictConn struct {
	net.Conn
	check func() error
	read  bytes.Buffer // bytes that the check has read and the server has not read yet
}

func (c *strictConn) Read(b []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, errors.Join(err, c.Close())
	}
	if c.read.Len() > 0 {
		return c.read.Read(b)
	}
	return c.Conn.Read(b)
}

func (c *strictConn) checkContentType() error {
	client := io.TeeReader(c.Conn, &c.read)
	if _, err := io.CopyN(io.Discard, client, int64(len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(io.Discard, client)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		headers, ok := frame.(*http2.HeadersFrame)
		if !ok {
			continue
		}
		fields, err := hpack.NewDecoder(4096, nil).DecodeFull(headers.HeaderBlockFragment())
		if err != nil {
			return err
		}
		for _, f := range fields {
			if f.Name == "content-type" && f.Value == "application/grpc" {
				return nil
			}
		}
		return errors.New("the content type is not application/grpc")
	}
}

func TestLister_IsServedByARuntimeThatChecksContentTypes(t *testing.T) {
	t.Parallel()
	boxes, _ := node(3)
	conn := serveOn(t, func(l net.Listener) net.Listener { return strictListener{l} }, map[string]handler{
		listSandboxes: func([]byte) ([][]byte, error) { return [][]byte{encode(boxes)}, nil },
	})
	got, err := newLister(t, wirelist.Config{Conn: conn}).ListPodSandbox(t.Context(), nil)
	equal(t, boxes.GetItems(), got, nil, err)
}
