package fakecri

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Program is what a container does: plain data, no code, so that a test says in
// one line what its containers are like. The zero Program runs for ever and
// ends at once with exit code 143 when it gets SIGTERM.
type Program struct {
	// Runtime is how long the program runs before it ends by itself. Zero: for
	// ever.
	Runtime time.Duration
	// ExitCode is its exit code when it ends by itself.
	ExitCode int32
	// OOMKilled makes the kernel kill it for memory at the end of Runtime, with
	// exit code 137 and reason OOMKilled, instead of ending by itself.
	OOMKilled bool
	// Crashes, if not zero, is how many attempts end by themselves: containers
	// whose CRI attempt is below it do, later ones run for ever.
	Crashes int

	// TermDelay is how long the program goes on after SIGTERM.
	TermDelay time.Duration
	// TermExitCode is its exit code after SIGTERM. Default 143, that of a
	// program without a handler for it.
	TermExitCode *int32
	// IgnoreTerm makes it ignore SIGTERM: only SIGKILL ends it.
	IgnoreTerm bool

	// StartError, if not empty, makes StartContainer fail with it, as it does
	// for a command that is not in the image.
	StartError string
	// Log holds the lines that the program writes to its standard output when
	// it starts. See Config.WriteLogs.
	Log []string
	// Exec holds the answers to ExecSync, by command with its words joined by
	// single spaces. A command that is not in it is not in the image either;
	// with a nil map every command ends at once with exit code 0.
	Exec map[string]Exec
}

// Exec is the answer to a command that is run in a container.
type Exec struct {
	// Runtime is how long the command takes.
	Runtime time.Duration
	// ExitCode, Stdout and Stderr are what it leaves.
	ExitCode       int32
	Stdout, Stderr string
}

// Validate reports every problem with p, joined.
func (p Program) Validate() error {
	var errs []error
	if p.Runtime < 0 {
		errs = append(errs, fmt.Errorf("field Runtime: %v is negative", p.Runtime))
	}
	if p.Runtime == 0 && (p.ExitCode != 0 || p.OOMKilled || p.Crashes != 0) {
		errs = append(errs, errors.New("fields ExitCode, OOMKilled and Crashes need a Runtime: the program never ends by itself"))
	}
	if p.OOMKilled && p.ExitCode != 0 {
		errs = append(errs, errors.New("field ExitCode: a program that is killed for memory has exit code 137"))
	}
	if p.Crashes < 0 {
		errs = append(errs, fmt.Errorf("field Crashes: %d is negative", p.Crashes))
	}
	if p.TermDelay < 0 {
		errs = append(errs, fmt.Errorf("field TermDelay: %v is negative", p.TermDelay))
	}
	if p.IgnoreTerm && (p.TermDelay != 0 || p.TermExitCode != nil) {
		errs = append(errs, errors.New("fields TermDelay and TermExitCode: the program ignores SIGTERM"))
	}
	for _, cmd := range slices.Sorted(maps.Keys(p.Exec)) {
		if p.Exec[cmd].Runtime < 0 {
			errs = append(errs, fmt.Errorf("field Exec[%q].Runtime: %v is negative", cmd, p.Exec[cmd].Runtime))
		}
	}
	return errors.Join(errs...)
}

// clone keeps later changes of the caller's maps and pointers out of the node.
func (p Program) clone() *Program {
	if p.TermExitCode != nil {
		p.TermExitCode = new(*p.TermExitCode)
	}
	p.Log = slices.Clone(p.Log)
	p.Exec = maps.Clone(p.Exec)
	return &p
}

// ending is how a program ends: how long after its start or its SIGTERM, with
// which exit code, and for what reason if the exit code does not say it.
type ending struct {
	after  time.Duration
	code   int32
	reason string
}

// ownEnd returns how an attempt ends by itself, and false if it never does.
func (p *Program) ownEnd(attempt uint32) (ending, bool) {
	if p.Runtime == 0 || p.Crashes != 0 && int64(attempt) >= int64(p.Crashes) {
		return ending{}, false
	}
	if p.OOMKilled {
		return ending{p.Runtime, exitKilled, reasonOOMKilled}, true
	}
	return ending{after: p.Runtime, code: p.ExitCode}, true
}

// termEnd returns how it ends at SIGTERM, and false if it ignores that.
func (p *Program) termEnd() (ending, bool) {
	if p.IgnoreTerm {
		return ending{}, false
	}
	if p.TermExitCode != nil {
		return ending{after: p.TermDelay, code: *p.TermExitCode}, true
	}
	return ending{after: p.TermDelay, code: exitTerminated}, true
}

// exec returns the answer to a command, and false if there is no such command.
func (p *Program) exec(cmd []string) (Exec, bool) {
	if p.Exec == nil {
		return Exec{}, true
	}
	answer, ok := p.Exec[strings.Join(cmd, " ")]
	return answer, ok
}

// DemoImages returns the images of [DemoPrograms], in the order of their names.
func DemoImages() []Image {
	names := slices.Sorted(maps.Keys(DemoPrograms()))
	images := make([]Image, len(names))
	for i, name := range names {
		images[i] = Image{Name: name, SizeBytes: uint64(i+1) << 20}
	}
	return images
}

// DemoPrograms returns a table of ready programs, one of each kind, in a new
// map that the caller may add to:
//
//	demo/web:1       runs for ever, ends with 0 at SIGTERM
//	demo/job:1       ends with 0 after half a second
//	demo/crash:1     ends with 1 after a second
//	demo/flaky:1     ends with 1 after a second twice, then runs for ever
//	demo/slow:1      runs for ever, takes three seconds to end at SIGTERM
//	demo/stubborn:1  runs for ever, ignores SIGTERM
//	demo/hungry:1    is killed for memory after two seconds
//	demo/broken:1    cannot be started
func DemoPrograms() map[string]Program {
	return map[string]Program{
		"demo/web:1":      {TermExitCode: new(int32), Log: []string{"listening on :8080"}},
		"demo/job:1":      {Runtime: 500 * time.Millisecond, Log: []string{"done"}},
		"demo/crash:1":    {Runtime: time.Second, ExitCode: 1, Log: []string{"about to crash"}},
		"demo/flaky:1":    {Runtime: time.Second, ExitCode: 1, Crashes: 2},
		"demo/slow:1":     {TermDelay: 3 * time.Second, TermExitCode: new(int32)},
		"demo/stubborn:1": {IgnoreTerm: true},
		"demo/hungry:1":   {Runtime: 2 * time.Second, OOMKilled: true},
		"demo/broken:1":   {StartError: `exec: "/missing": stat /missing: no such file or directory`},
	}
}
