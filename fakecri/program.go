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

// Program defines what a container does, as plain data, so that a test can define its
// containers in one line. The zero Program runs for ever and exits at once with exit code
// 143 when it gets SIGTERM.
type Program struct {
	// Runtime is how long the program runs before it exits by itself. Zero means for ever.
	Runtime time.Duration
	// ExitCode is the exit code of a program that exits by itself.
	ExitCode int32
	// OOMKilled means that the kernel kills the program at the end of Runtime, with exit
	// code 137 and reason OOMKilled, instead of a normal exit.
	OOMKilled bool
	// Crashes, if not zero, is the number of attempts that exit by themselves. Containers
	// whose CRI attempt is less than Crashes exit; containers with a later attempt run for
	// ever.
	Crashes int

	// TermDelay is how long the program runs after SIGTERM.
	TermDelay time.Duration
	// TermExitCode is the exit code after SIGTERM. Default 143, the exit code of a program
	// without a handler for SIGTERM.
	TermExitCode *int32
	// IgnoreTerm makes the program ignore SIGTERM, so that only SIGKILL ends it.
	IgnoreTerm bool

	// HealthyAfter is the time from the start of the program until it is healthy.
	// [Node.SetHealthy] overrides it. While the program is not healthy, its ports behave as
	// documented at Protocol, and commands with Exec.Health fail.
	HealthyAfter time.Duration
	// Ports are the ports on which the program listens, if Config.Listen is set.
	Ports []Port

	// CPUMilli is the CPU usage of the program while it runs, in thousandths of a core.
	// Default 1.
	CPUMilli uint64
	// Memory is the allocated memory of the program in bytes. If it exceeds the memory
	// limit of the container, the kernel kills the program, as with OOMKilled. Default 1
	// MiB.
	Memory Growth
	// Disk and Inodes are the bytes and the files that the program has written to the
	// container's writable layer.
	Disk, Inodes Growth

	// StartError, if not empty, makes StartContainer fail with this error, for example for
	// a command that is not in the image.
	StartError string
	// Log holds the lines that the program writes to its standard output when
	// it starts. See Config.WriteLogs.
	Log []string
	// LogInterval, if not zero, is the interval after which the program writes the lines
	// again.
	LogInterval time.Duration
	// Exec has the results of ExecSync and [Node.ExecStream]. A key is a command with its
	// words joined by single spaces. A command that is not in the map fails as if the image
	// did not contain it. With a nil map every command exits at once with exit code 0.
	Exec map[string]Exec
}

// Exec is the result of a command that is run in a container.
type Exec struct {
	// Runtime is how long the command takes.
	Runtime time.Duration
	// ExitCode, Stdout and Stderr are the exit code and the output of the command.
	ExitCode       int32
	Stdout, Stderr string
	// Health makes the exit code 1 while the program is not healthy.
	Health bool
	// Echo makes a command of [Node.ExecStream] copy its standard input to its standard output, like
	// cat, after it has written Stdout and Stderr. The command ends when the input ends. It also
	// writes a line with the rows and the columns of each new size of the client's terminal, like
	// stty size.
	Echo bool
}

// maxCPUMilli is the largest CPU usage of a program.
const maxCPUMilli = 1_000_000

// Validate returns all problems with p as one joined error.
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
		errs = append(errs, errors.New("fields ExitCode, OOMKilled and Crashes require Runtime: without it the program never exits by itself"))
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
			errs = append(errs, fmt.Errorf("field Ports[%d]: duplicate port %d", i, port.Number))
		}
		seen[port.Number] = true
	}
	return errors.Join(errs...)
}

// clone returns a copy with defaults. It shares no maps, slices and pointers with p, so that
// the caller may change p.
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

// ending defines the exit of a program: the time from its start or from SIGTERM, the exit
// code, and the reason. The reason is empty if it follows from the exit code.
type ending struct {
	after  time.Duration
	code   int32
	reason string
}

// ownEnd returns how an attempt exits by itself. It reports false if the attempt runs for
// ever.
func (p *Program) ownEnd(attempt uint32) (ending, bool) {
	if p.Runtime == 0 || p.Crashes != 0 && int64(attempt) >= int64(p.Crashes) {
		return ending{}, false
	}
	if p.OOMKilled {
		return ending{p.Runtime, exitKilled, reasonOOMKilled}, true
	}
	return ending{after: p.Runtime, code: p.ExitCode}, true
}

// termEnd returns how the program exits after SIGTERM. It reports false if the program
// ignores SIGTERM.
func (p *Program) termEnd() (ending, bool) {
	if p.IgnoreTerm {
		return ending{}, false
	}
	if p.TermExitCode != nil {
		return ending{after: p.TermDelay, code: *p.TermExitCode}, true
	}
	return ending{after: p.TermDelay, code: exitTerminated}, true
}

// exec returns the result of a command. It reports false if the command does not exist.
func (p *Program) exec(cmd []string) (Exec, bool) {
	if p.Exec == nil {
		return Exec{}, true
	}
	answer, ok := p.Exec[strings.Join(cmd, " ")]
	return answer, ok
}
