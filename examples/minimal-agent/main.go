// Command minimal-agent is a node agent of Kubeparts' managers: it runs the pods
// of a folder of manifests on a CRI runtime, shows what becomes of them, and
// takes them down when their manifests go. Its other commands ask one that runs.
// See the README next to it.
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
	"runtime/debug"
	"syscall"

	"k8s.io/utils/clock"

	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // it makes little garbage, and what it keeps is taken from pods
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
		RunFlags: runFlags,
		Dump:     dump,
	}
	os.Exit(p.Main(ctx, os.Args[1:]))
}

// run is the agent but for the process around it: it returns when ctx is done and
// everything that it started has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stdout)
	if err != nil {
		return cli.Usage(err)
	}
	out := &console{out: stdout}
	for _, note := range o.notes {
		out.say("%s: %v", o.configFile, note)
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))

	counts, err := newExporter(logger)
	if err != nil {
		return err
	}
	node, err := openNode(ctx, o, out, counts)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before it had begun
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, node.close()) }()

	a, err := newAgent(ctx, o, node, out, logger)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// runFlags are the names of run's flags.
func runFlags() (all []string) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	new(options).register(flags)
	flags.VisitAll(func(f *flag.Flag) { all = append(all, "--"+f.Name) })
	return all
}

// dump is the configuration that run has with these arguments, as the file that says
// all of it. What only flags say is a comment.
func dump(args []string) ([]byte, error) {
	o, err := parseOptions(args, io.Discard)
	if err != nil {
		return nil, cli.Usage(err)
	}
	text, err := o.YAML()
	flags := fmt.Sprintf("# --node-name=%s --agent-name=%s --root-dir=%s --token-file=%s --stop-pods=%t --take-over=%t",
		o.nodeName, o.agentName, o.rootDir, o.tokenFile, o.stopPods, o.takeOver)
	return fmt.Appendf(nil, "%s\n%s", printable.Line(flags), text), err
}
