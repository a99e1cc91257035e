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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
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
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))

	node, err := openNode(ctx, o, stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	a, err := newAgent(o, node, &console{out: stdout}, logger)
	if err != nil {
		return err
	}
	return a.run(ctx)
}
