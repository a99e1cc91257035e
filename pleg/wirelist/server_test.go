package wirelist_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
)

// raw is the codec of a server whose messages are bytes.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
func (raw) Name() string { return "proto" }

// A handler returns the parts of a response, and the error with which the call
// ends.
type handler func(request []byte) (parts [][]byte, err error)

// newServer returns a gRPC server of these methods. All others are Unimplemented.
func newServer(methods map[string]handler, opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts,
		grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(raw{}),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(s)
			h := methods[method]
			if h == nil {
				return grpcstatus.Error(codes.Unimplemented, "unknown method "+method)
			}
			var request []byte
			if err := s.RecvMsg(&request); err != nil {
				return err
			}
			parts, err := h(request)
			for _, part := range parts {
				if err := s.SendMsg(part); err != nil {
					return err
				}
			}
			return err
		}))...)
}

// serve serves the methods on a unix socket until the test ends, and returns a
// connection to it.
func serve(tb testing.TB, methods map[string]handler, opts ...grpc.ServerOption) *grpc.ClientConn {
	tb.Helper()
	return serveOn(tb, func(l net.Listener) net.Listener { return l }, methods, opts...)
}

// serveOn is like serve, but serves on the listener that wrap returns for the
// socket's listener.
func serveOn(tb testing.TB, wrap func(net.Listener) net.Listener, methods map[string]handler, opts ...grpc.ServerOption) *grpc.ClientConn {
	tb.Helper()
	socket := filepath.Join(tb.TempDir(), "cri.sock")
	lis, err := net.Listen("unix", socket)
	require.NoError(tb, err)
	srv := newServer(methods, opts...)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(wrap(lis)) }()
	tb.Cleanup(func() {
		srv.Stop()
		require.NoError(tb, <-served)
	})
	return dial(tb, socket)
}

func dial(tb testing.TB, socket string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("unix:"+socket, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, conn.Close()) })
	return conn
}

// A benchmark starts the test binary again as the runtime, so that it measures
// only the client. These environment variables mark that process.
const (
	envSocket = "WIRELIST_BENCH_SOCKET"
	envPods   = "WIRELIST_BENCH_PODS"
)

// startRuntime starts a process that serves a runtime with the given number of
// pods, and returns its socket.
func startRuntime(tb testing.TB, pods int) string {
	tb.Helper()
	socket := filepath.Join(tb.TempDir(), "cri.sock")
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envSocket+"="+socket, envPods+"="+strconv.Itoa(pods))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n') // the runtime listens now
	require.NoError(tb, err)
	return socket
}

// beRuntime is the main function of the process that startRuntime starts.
func beRuntime(socket string) error {
	pods, err := strconv.Atoi(os.Getenv(envPods))
	if err != nil {
		return err
	}
	boxes, containers := variants(pods)
	var calls atomic.Int64
	next := func() int { return int(calls.Add(1)) / 2 % len(boxes) }
	lis, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	return newServer(map[string]handler{
		listSandboxes:  func([]byte) ([][]byte, error) { return [][]byte{boxes[next()]}, nil },
		listContainers: func([]byte) ([][]byte, error) { return [][]byte{containers[next()]}, nil },
	}).Serve(lis)
}
