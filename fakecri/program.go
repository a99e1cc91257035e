package fakecri

import (
	"cmp"
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

	// HealthyAfter is how long after its start it becomes healthy. Before that,
	// and while [Node.SetHealthy] says so, its ports answer as Port says and
	// commands with Exec.Health fail.
	HealthyAfter time.Duration
	// Ports are what it listens on, if Config.Listen is set.
	Ports []Port

	// CPUMilli is how much CPU it uses while it runs, in thousandths of a core.
	// Default 1.
	CPUMilli uint64
	// Memory is what it has allocated, in bytes. When that is more than the
	// container's limit the kernel kills it, as with OOMKilled. Default 1 MiB.
	Memory Growth
	// Disk and Inodes are what it has written to the container's own layer, in
	// bytes and in files.
	Disk, Inodes Growth

	// StartError, if not empty, makes StartContainer fail with it, as it does
	// for a command that is not in the image.
	StartError string
	// Log holds the lines that the program writes to its standard output when
	// it starts. See Config.WriteLogs.
	Log []string
	// LogInterval, if not zero, makes it write them again after every interval.
	LogInterval time.Duration
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
	// Health makes the exit code 1 while the program is not healthy.
	Health bool
}

// maxCPUMilli is the most CPU that a program can use.
const maxCPUMilli = 1_000_000

// Validate reports every problem with p, joined.
func (p Program) Validate() error {
	errs := []error{p.validateEnd(), p.validatePorts()}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Runtime", p.Runtime},
		{"TermDelay", p.TermDelay},
		{"HealthyAfter", p.HealthyAfter},
		{"LogInterval", p.LogInterval},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value Growth
	}{{"Memory", p.Memory}, {"Disk", p.Disk}, {"Inodes", p.Inodes}} {
		if err := f.value.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("field %s: %w", f.name, err))
		}
	}
	if p.CPUMilli > maxCPUMilli {
		errs = append(errs, fmt.Errorf("field CPUMilli: %d is more than a thousand cores", p.CPUMilli))
	}
	if p.LogInterval > 0 && len(p.Log) == 0 {
		errs = append(errs, errors.New("field LogInterval needs lines in Log"))
	}
	for _, cmd := range slices.Sorted(maps.Keys(p.Exec)) {
		if p.Exec[cmd].Runtime < 0 {
			errs = append(errs, fmt.Errorf("field Exec[%q].Runtime: %v is negative", cmd, p.Exec[cmd].Runtime))
		}
	}
	return errors.Join(errs...)
}

func (p Program) validateEnd() error {
	var errs []error
	if p.Runtime == 0 && (p.ExitCode != 0 || p.OOMKilled || p.Crashes != 0) {
		errs = append(errs, errors.New("fields ExitCode, OOMKilled and Crashes need a Runtime: the program never ends by itself"))
	}
	if p.OOMKilled && p.ExitCode != 0 {
		errs = append(errs, errors.New("field ExitCode: a program that is killed for memory has exit code 137"))
	}
	if p.Crashes < 0 {
		errs = append(errs, fmt.Errorf("field Crashes: %d is negative", p.Crashes))
	}
	if p.IgnoreTerm && (p.TermDelay != 0 || p.TermExitCode != nil) {
		errs = append(errs, errors.New("fields TermDelay and TermExitCode: the program ignores SIGTERM"))
	}
	return errors.Join(errs...)
}

func (p Program) validatePorts() error {
	var errs []error
	seen := map[uint16]bool{}
	for i, port := range p.Ports {
		if err := port.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("field Ports[%d]: %w", i, err))
		}
		if seen[port.Number] {
			errs = append(errs, fmt.Errorf("field Ports[%d]: port %d is there already", i, port.Number))
		}
		seen[port.Number] = true
	}
	return errors.Join(errs...)
}

// clone keeps later changes of the caller's maps and pointers out of the node,
// and fills in what has a default.
func (p Program) clone() *Program {
	if p.TermExitCode != nil {
		p.TermExitCode = new(*p.TermExitCode)
	}
	p.Log = slices.Clone(p.Log)
	p.Exec = maps.Clone(p.Exec)
	p.Ports = slices.Clone(p.Ports)
	for i := range p.Ports {
		p.Ports[i].Paths = maps.Clone(p.Ports[i].Paths)
		p.Ports[i].Protocol = cmp.Or(p.Ports[i].Protocol, HTTP)
	}
	if p.CPUMilli == 0 {
		p.CPUMilli = 1
	}
	if p.Memory == (Growth{}) {
		p.Memory.Start = 1 << 20
	}
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
