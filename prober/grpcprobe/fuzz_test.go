package grpcprobe_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// reply is an answer of three parts, each of which may be missing.
type reply struct {
	status, contentType, encoding string
	body                          []byte
	grpcStatus, grpcMessage       string
	dataEnds                      bool
}

func (r *reply) answer(w *wire, id uint32) {
	head := []string{":status", r.status}
	if r.contentType != "" {
		head = append(head, "content-type", r.contentType)
	}
	if r.encoding != "" {
		head = append(head, "grpc-encoding", r.encoding)
	}
	trailers := []string{"x", "y"}
	if r.grpcStatus != "" {
		trailers = []string{"grpc-status", r.grpcStatus, "grpc-message", r.grpcMessage}
	}
	if len(r.body) == 0 {
		w.head(id, true, append(head, trailers...)...)
		return
	}
	w.head(id, false, head...)
	_ = w.WriteData(id, r.dataEnds, r.body)
	if !r.dataEnds {
		w.head(id, true, trailers...)
	}
}

// Whatever the answer, it is to the package what it is to gRPC's own client.
func FuzzAnswer(f *testing.F) {
	const grpc = "application/grpc"
	serving := message(0, 8, 1)
	f.Add("200", grpc, "", serving, "0", "", false)
	f.Add("200", grpc, "", serving, "0", "", true)
	f.Add("200", grpc+"+proto", "gzip", message(1, 8, 1), "0", "", false)
	f.Add("200", grpc, "identity", message(1, 8, 1), "", "", false)
	f.Add("200", grpc, "", append(serving, serving...), "0", "", false)
	f.Add("200", grpc, "", append(serving, 1), "0", "", false)
	f.Add("200", grpc, "", []byte{}, "12", "caf%C3%A9 100% %zz", false)
	f.Add("404", "text/html", "", []byte("<html>"), "", "", true)
	f.Add("103", "", "", []byte{}, "0", "", false)
	f.Add("x", "", "", []byte{1}, "-1", "", false)
	f.Add("200", grpc, "", []byte{0, 0, 0, 64, 0, 1}, "0", "", false)
	f.Add("200", grpc, "", []byte{3, 0, 0, 0, 0}, "4294967296", "", false)
	var current atomic.Pointer[reply]
	address := scripted(f, func(w *wire, id uint32) { current.Load().answer(w, id) })
	k, client := checker(f, grpcprobe.Config{}), clientOf(f, address)
	f.Fuzz(func(t *testing.T, status, contentType, encoding string, body []byte, grpcStatus, grpcMessage string, dataEnds bool) {
		if len(body) > 10_000 || len(status)+len(contentType)+len(encoding)+len(grpcStatus)+len(grpcMessage) > 10_000 {
			return // what is bounded is bounded elsewhere by the two
		}
		for rest := body; len(rest) >= 5; {
			size := binary.BigEndian.Uint32(rest[1:])
			if size >= 16<<10 {
				return // likewise
			}
			rest = rest[min(len(rest), 5+int(size)):]
		}
		current.Store(&reply{status, contentType, encoding, body, grpcStatus, grpcMessage, dataEnds})
		outcome, output := kubeletSays(t.Context(), client, "", time.Second)
		got, text := ask(t, k, prober.GRPCRequest{Address: address}, time.Second)
		require.Equal(t, outcome, got, "%s instead of %s", text, output)
		require.Equal(t, output, text)
	})
}

// Whatever comes over a connection, a check ends in good time with one outcome or the
// other.
func FuzzServer(f *testing.F) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	f.Add([]byte(settings))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte(settings + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"))
	f.Add([]byte(settings + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"))
	f.Add([]byte(settings + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"))
	f.Add([]byte(settings + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"))
	f.Add([]byte(settings + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x07\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01"))
	f.Add([]byte(settings + "\x00\x00\x12\x01\x04\x00\x00\x00\x01\x88\x5f\x10application/grpc" +
		"\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01" +
		"\x00\x00\x0f\x01\x05\x00\x00\x00\x01\x00\x0bgrpc-status\x010"))
	var current atomic.Pointer[[]byte]
	address := listen(f, func(conn net.Conn, _ int) {
		_, _ = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
		_, _ = conn.Write(*current.Load())
		_ = conn.(*net.TCPConn).CloseWrite()
		hang(conn)
	})
	f.Fuzz(func(t *testing.T, says []byte) {
		current.Store(&says)
		k := checker(t, grpcprobe.Config{})
		began := time.Now()
		for range 2 {
			outcome, output := ask(t, k, prober.GRPCRequest{Address: address}, patience)
			require.Equal(t, outcome == prober.Succeeded, output == "service healthy")
			require.NotContains(t, output, "timeout")
		}
		require.Less(t, time.Since(began), patience)
	})
}
