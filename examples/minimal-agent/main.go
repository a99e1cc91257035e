// Command minimal-agent is a node agent of Kubeparts' managers: it runs the pods
// of a folder of manifests on a CRI runtime, shows what becomes of them, and
// takes them down when their manifests go. See the README next to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/metrics"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		fmt.Fprintln(os.Stderr, "minimal-agent: stopped at once, with everything left as it is")
		os.Exit(1)
	}()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "minimal-agent: %v\n", err)
		os.Exit(1)
	}
}

// run is the whole program but for the process around it: it returns when ctx is
// done and everything that it started has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))

	counts, err := metrics.New(metrics.Config{NodeName: o.nodeName, Logger: logger})
	if err != nil {
		return err
	}
	node, err := openNode(ctx, o, stdout, counts)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before it had begun
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	a, err := newAgent(o, node, &console{out: stdout}, logger)
	if err != nil {
		return err
	}
	return a.run(ctx)
}
