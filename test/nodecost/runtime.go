package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	// serveCommand makes this program the runtime: serve SOCKET EVENTS.
	serveCommand = "serve"
	image        = "demo/web:1"
	port         = 8080
)

// serveRuntime serves a node on the socket until it has read in to the end. For each line
// of in it writes the number of calls of each CRI method so far to out.
func serveRuntime(ctx context.Context, socket string, events bool, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	node, err := fakecri.New(fakecri.Config{
		Images:   []fakecri.Image{{Name: image}},
		Programs: map[string]fakecri.Program{image: {Ports: []fakecri.Port{{Number: port}}}},
		Listen:   net.Listen,
		// Two measurements that run at the same time need different addresses.
		PodNetwork: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(1 + os.Getpid()%250), 0, 0}), 16),
		Record:     true,
		// Without log files, the agent would call ReopenContainerLog.
		WriteLogs: true,
	})
	if err != nil {
		return err
	}
	defer node.Shutdown()
	if !events {
		none := fakecri.Fault{Err: grpcstatus.Error(codes.Unimplemented, "this runtime has no events")}
		if err := node.Fail("GetContainerEvents", none); err != nil {
			return err
		}
	}
	lis, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- node.Serve(ctx, lis) }()
	errAnswer := answer(node, in, out)
	cancel()
	return errors.Join(errAnswer, <-served)
}

// answer responds to each line of in with the calls so far.
func answer(node *fakecri.Node, in io.Reader, out io.Writer) error {
	encode := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		calls := map[string]int{}
		for _, c := range node.Calls() {
			calls[c.Method]++
		}
		if err := encode.Encode(calls); err != nil {
			return err
		}
	}
	return lines.Err()
}

// cri is the process of a runtime.
type cri struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startRuntime starts this program again as the runtime process.
func startRuntime(ctx context.Context, socket string, events bool) (*cri, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, serveCommand, socket, fmt.Sprint(events))
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &cri{cmd: cmd, in: in, out: json.NewDecoder(out)}
	if _, err := c.calls(); err != nil { // the runtime process responds when it listens
		return nil, errors.Join(fmt.Errorf("start the runtime: %w", err), c.stop())
	}
	return c, nil
}

// calls returns the number of calls of each method so far.
func (c *cri) calls() (calls map[string]int, err error) {
	if _, err := io.WriteString(c.in, "calls\n"); err != nil {
		return nil, err
	}
	err = c.out.Decode(&calls)
	return calls, err
}

// stop stops the runtime process.
func (c *cri) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }
