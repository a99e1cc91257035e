package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// What Main returns.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2 // the arguments are wrong
	ExitUnreachable = 3 // no agent answers
)

// Program is the process that the commands run in. All fields but Getenv and
// Terminal are required.
type Program struct {
	Name, Version  string
	Stdout, Stderr io.Writer
	Clock          clock.WithTicker
	// Getenv reads the environment. Default: it is empty.
	Getenv func(string) string
	// Terminal returns the size of the terminal that Stdout is, and whether it is
	// one. Default: it is none.
	Terminal func() (width, height int, ok bool)
	// Run is the agent. Its errors that are [Usage] mean [ExitUsage].
	Run func(ctx context.Context, args []string) error
	// RunFlags are the names of its flags.
	RunFlags func() []string
	// Dump returns the configuration that Run would have with these arguments.
	Dump func(args []string) ([]byte, error)
}

// usageError is the caller's mistake.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as one of wrong arguments. Nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

func usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// command is one of the program's.
type command struct {
	name string
	args string // what may follow, for people
	does string // in a few words
	// flags registers them. Nil: there are none.
	flags func(*flag.FlagSet)
	// complete says what may come next, after these arguments. Nil: nothing known.
	complete func(ctx context.Context, args []string) []string
	run      func(ctx context.Context, args []string) error
	// raw leaves all arguments to run, flags too.
	raw bool
}

// Main runs the command of args and returns the process's exit code.
func (p Program) Main(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, printable.Lines(err.Error(), "  "))
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[*api.UnreachableError](err); ok || errors.Is(err, api.ErrStreamEnded) {
		return ExitUnreachable
	}
	return ExitFailed
}

func (p Program) dispatch(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help"):
		p.help()
		return nil
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		return p.Run(ctx, args)
	case args[0] == "run":
		return p.Run(ctx, args[1:])
	case args[0] == completeCommand:
		for _, word := range p.candidates(ctx, args[1:]) {
			fmt.Fprintln(p.Stdout, word)
		}
		return nil
	}
	for _, c := range p.commands() {
		if c.name == args[0] {
			return p.invoke(ctx, c, args[1:])
		}
	}
	return usagef("there is no command %q: %s help lists them", args[0], p.Name)
}

func (p Program) invoke(ctx context.Context, c command, args []string) error {
	asksHelp := len(args) == 1 && strings.TrimLeft(args[0], "-") == "help"
	if c.raw && !asksHelp {
		return c.run(ctx, args)
	}
	flags := c.flagSet()
	rest, err := parseMixed(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.Stdout, "%s %s: %s\n", p.Name, strings.TrimSpace(c.name+" "+c.args), c.does)
		flags.SetOutput(p.Stdout)
		flags.PrintDefaults()
		return err
	case err != nil:
		return usagef("%w (%s %s --help lists the flags)", err, p.Name, c.name)
	}
	return c.run(ctx, rest)
}

func (c command) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are said once, by Main
	if c.flags != nil {
		c.flags(flags)
	}
	return flags
}

// parseMixed parses flags wherever they are, and returns the other arguments. What
// is behind -- is no flag.
func parseMixed(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		left := flags.Args()
		read := len(args) - len(left)
		if len(left) == 0 || read > 0 && args[read-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// commands are all but run, in the order of help.
func (p Program) commands() []command {
	return []command{
		p.status(), p.top(), p.pods(), p.logs(), p.events(), p.explain(),
		p.evict(), p.gc(), p.config(), p.completion(), p.version(),
	}
}

func (p Program) help() {
	fmt.Fprintf(p.Stdout, "%s is a node agent, and asks one that runs.\n\n", p.Name)
	t := newTable(p.Stdout, look{})
	t.row(plain, "  run", "the agent itself, also without a command (run --help lists its flags)")
	for _, c := range p.commands() {
		t.row(plain, "  "+strings.TrimSpace(c.name+" "+c.args), c.does)
	}
	t.flush()
	fmt.Fprintf(p.Stdout, "\n%s COMMAND --help says more. Commands ask the agent at --server, or at %s, or at %s.\n", p.Name, serverVariable, api.DefaultServer)
}

func (p Program) getenv(name string) string {
	if p.Getenv == nil {
		return ""
	}
	return p.Getenv(name)
}

func (p Program) terminal() (width, height int, ok bool) {
	if p.Terminal == nil {
		return 0, 0, false
	}
	return p.Terminal()
}

// noArguments refuses what nobody would read.
func noArguments(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}
