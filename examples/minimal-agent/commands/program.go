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
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// Exit codes that Main returns.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2 // the arguments are wrong
	ExitUnreachable = 3 // no agent answers, or the agent has ended a stream of events
)

// Program contains the functions and values that the commands need from the process. All fields
// without a default are required.
type Program struct {
	Name, Version  string
	Stdout, Stderr io.Writer
	// Stdin is the standard input of exec, attach and validate. Default: empty.
	Stdin io.Reader
	Clock clock.WithTicker
	// Getenv returns an environment variable. Default: all variables are empty.
	Getenv func(string) string
	// Terminal returns the size of the terminal that Stdout writes to. ok is false if Stdout is
	// not a terminal. Default: not a terminal.
	Terminal func() (width, height int, ok bool)
	// RawTerminal switches the terminal of Stdin to raw mode, and returns a function that restores
	// the terminal. It returns an error if Stdin is not a terminal. Default: not a terminal.
	RawTerminal func() (restore func(), err error)
	// Resized returns a channel that receives a message when the size of the terminal may have
	// changed, until ctx is done. Default: the size never changes.
	Resized func(ctx context.Context) <-chan struct{}
	// Run runs the agent until ctx is done. Errors that [Usage] has marked cause [ExitUsage].
	Run func(ctx context.Context, args []string) error
	// RunFlags returns the names of the flags that Run accepts.
	RunFlags func() []string
	// Dump returns the configuration that Run would use with args.
	Dump func(args []string) ([]byte, error)
}

// usageError is an error in the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as an error in the arguments, which causes [ExitUsage]. It returns nil if err
// is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

func usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// command is a command of the program.
type command struct {
	name    string
	args    string // the arguments, as shown in the help
	summary string // the one-line help
	// flags defines the command's flags. Nil means that the command has no flags.
	flags func(*flag.FlagSet)
	// complete returns the candidates for the argument after args. Nil means no candidates.
	complete func(ctx context.Context, args []string) []string
	run      func(ctx context.Context, args []string) error
	// If raw is true, the field run gets all arguments, including flags. A single argument --help
	// still prints the help.
	raw bool
}

// Main runs the command in args and returns the exit code for the process. The command exec returns
// the exit code of the command in the container.
func (p Program) Main(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	if e, ok := errors.AsType[*stream.ExitError](err); ok {
		fmt.Fprintln(p.Stderr, e)
		return e.Code
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
	return usagef("unknown command %q: %s help lists the commands", args[0], p.Name)
}

func (p Program) invoke(ctx context.Context, c command, args []string) error {
	wantsHelp := len(args) == 1 && strings.TrimLeft(args[0], "-") == "help"
	if c.raw && !wantsHelp {
		return c.run(ctx, args)
	}
	flags := c.flagSet()
	rest, err := parseMixed(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.Stdout, "%s %s: %s\n", p.Name, strings.TrimSpace(c.name+" "+c.args), c.summary)
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
	flags.SetOutput(io.Discard) // Main prints the error
	if c.flags != nil {
		c.flags(flags)
	}
	return flags
}

// parseMixed parses flags before, between and after other arguments, and returns the other
// arguments. Arguments after -- are not flags.
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

// commands returns all commands except run, in the order of the help text.
func (p Program) commands() []command {
	return []command{
		p.status(), p.top(), p.pods(), p.logs(), p.events(), p.explain(),
		p.exec(), p.attach(), p.portForward(), p.cp(), p.restart(), p.images(), p.pull(),
		p.evict(), p.gc(), p.validateManifests(), p.config(), p.completion(), p.version(),
	}
}

func (p Program) help() {
	fmt.Fprintf(p.Stdout, "%s runs a node agent, or queries a running one.\n\n", p.Name)
	t := newTable(p.Stdout, style{})
	t.row(plain, "  run", "run the agent; this is the default without a command (run --help lists the flags)")
	for _, c := range p.commands() {
		t.row(plain, "  "+strings.TrimSpace(c.name+" "+c.args), c.summary)
	}
	t.flush()
	fmt.Fprintf(p.Stdout, "\n%s COMMAND --help lists the flags of a command. Commands that query an agent have the flag --server (default: the value of %s, else %s).\n", p.Name, serverVariable, api.DefaultServer)
}

func (p Program) getenv(name string) string {
	if p.Getenv == nil {
		return ""
	}
	return p.Getenv(name)
}

func (p Program) stdin() io.Reader {
	if p.Stdin == nil {
		return strings.NewReader("")
	}
	return p.Stdin
}

func (p Program) terminal() (width, height int, ok bool) {
	if p.Terminal == nil {
		return 0, 0, false
	}
	return p.Terminal()
}

// noArguments returns an error if there are arguments.
func noArguments(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}
