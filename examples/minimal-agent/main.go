// Command minimal-agent is a node agent built from Kubeparts. It runs the pods of a
// folder of manifests on a CRI runtime, prints the changes of the pods' statuses, and
// removes a pod when its manifest is deleted. Its other commands query a running agent.
// See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/metrics"
	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // the agent allocates little, and memory that it does not use is free for pods
	}
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		fmt.Fprintln(os.Stderr, "minimal-agent: exiting at once after a second signal")
		os.Exit(1)
	}()
	p := cli.Program{
		Name: "minimal-agent", Version: version(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Clock: clock.RealClock{}, Getenv: os.Getenv,
		Terminal:    func() (int, int, bool) { return terminalSize(os.Stdout) },
		RawTerminal: func() (func(), error) { return rawTerminal(os.Stdin) },
		Resized:     resizes,
		Run:         func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout, os.Stderr) },
		RunFlags:    settings.Flags,
		Dump: func(args []string) ([]byte, error) {
			text, err := settings.Dump(args)
			if err != nil {
				err = cli.Usage(err)
			}
			return text, err
		},
	}
	os.Exit(p.Main(ctx, os.Args[1:]))
}

// run runs the agent with the flags in args until ctx is done or a part of the agent fails.
// It returns when all parts of the agent have ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := settings.Parse(args, stdout)
	if err != nil {
		return cli.Usage(err)
	}
	out := &console{out: stdout}
	for _, note := range o.Notes {
		out.printf("%s: %v", o.ConfigFile, note)
	}
	level := new(slog.LevelVar) // clients may change it at /debug/flags/v
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	counts, err := metrics.NewPages(log)
	if err != nil {
		return err
	}
	m, err := machine.Open(ctx, o, machine.Dependencies{Print: out.printf, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(counts.CallObserver())}, Logger: log})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the user stopped the program before it was connected to the runtime
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	p, err := newProgram(o, m, counts, out, logger{log, level})
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// version returns the version that the Go tool recorded in the program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
