// Command cluster-agent is a node agent of a Kubernetes cluster, built from Kubeparts. It runs in
// the place of a kubelet, with the kubelet's configuration file. See README.md.
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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr, connectors{client: func(c *rest.Config) (kubernetes.Interface, error) { return kubernetes.NewForConfig(c) }})
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "cluster-agent: %v\n", err)
		os.Exit(1)
	}
}

// connectors create connections. Tests have their own.
type connectors struct {
	// client returns a client of the API server.
	client func(*rest.Config) (kubernetes.Interface, error)
}

// run runs the agent with the flags in args until ctx is done. The pods keep running. run writes
// the log, and with --help the list of flags, to stderr.
func run(ctx context.Context, args []string, stderr io.Writer, connect connectors) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar) // clients may change it at /debug/flags/v
	if o.verbosity >= debugVerbosity {
		level.Set(slog.LevelDebug)
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	for _, note := range o.notes {
		log.WarnContext(ctx, "note about the configuration file", "file", o.configFile, "note", note.Error())
	}
	p, err := newProgram(ctx, o, connect, logger{log, level})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	return errors.Join(p.run(ctx), p.runtime.Close())
}

// unlessStopped returns err, or nil if the user has stopped the program.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
