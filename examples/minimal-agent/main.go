// Command minimal-agent is a node agent of Kubeparts' managers: it runs the pods
// of a folder of manifests on a CRI runtime, shows what becomes of them, and
// takes them down when their manifests go. Its other commands ask one that runs.
// See the README next to it.
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

	"k8s.io/utils/clock"

	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30) // it makes little garbage, and what it keeps is taken from pods
	}
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		fmt.Fprintln(os.Stderr, "minimal-agent: stopped at once")
		os.Exit(1)
	}()
	p := cli.Program{
		Name: "minimal-agent", Version: version(),
		Stdout: os.Stdout, Stderr: os.Stderr, Clock: clock.RealClock{}, Getenv: os.Getenv,
		Terminal: func() (int, int, bool) { return terminalSize(os.Stdout) },
		Run:      func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout, os.Stderr) },
		RunFlags: settings.Flags,
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

// run is the agent but for the process around it: it returns when ctx is done and
// everything that it started has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := settings.Parse(args, stdout)
	if err != nil {
		return cli.Usage(err)
	}
	out := &console{out: stdout}
	for _, note := range o.Notes {
		out.say("%s: %v", o.ConfigFile, note)
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))

	counts, err := newExporter(logger)
	if err != nil {
		return err
	}
	m, err := machine.Open(ctx, o, machine.Uses{Say: out.say, DialOptions: counts.dialOptions(), Logger: logger})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before it had begun
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	p, err := newProgram(o, m, counts, out, logger)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// version is this program's, as the Go tool has stamped it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
