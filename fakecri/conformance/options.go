package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Options says what [Test] runs on a runtime, and how patient it is. It is
// copied. [Shell] fills in the programs for an image that has a shell.
type Options struct {
	// Sleeper runs until it gets SIGTERM and then ends at once with ExitCode.
	// Required. Exec and ResourceUpdate are tried on it.
	Sleeper Workload
	// Stubborn runs for minutes and ignores SIGTERM. Required.
	Stubborn Workload
	// Completer ends by itself within Settle, with code 0. Required.
	Completer Workload
	// Failer ends by itself within Settle, with ExitCode, which is not 0.
	// Required.
	Failer Workload
	// Broken cannot be started, for example because its command is not in the
	// image. Required.
	Broken Workload
	// Exec are commands that can be run in Sleeper. Required.
	Exec Exec
	// PullImage is an image that can be pulled without credentials, and that
	// nobody needs: it is removed. Required.
	PullImage string
	// MissingImage is a well-formed name of an image that can be neither found
	// nor pulled. Required.
	MissingImage string

	// CgroupParent is the cgroup that pods are made in, as
	// LinuxPodSandboxConfig has it. Empty: the runtime's own choice.
	CgroupParent string
	// LogRoot is a folder that the runtime writes logs below and the test reads
	// them from. Default: a temporary one of the test.
	LogRoot string

	// CallTimeout bounds a call to the runtime. Default 30s.
	CallTimeout time.Duration
	// Settle is how long what happens by itself may take until it shows, and by
	// how much a grace period may be exceeded. Default 5s.
	Settle time.Duration
	// Grace is the grace period that stops are tried with, in whole seconds.
	// Default 1s.
	Grace time.Duration

	// Skip names checks that are not run, each with the reason, which is
	// reported as the test's. [Checks] has the names; a name that is not there
	// or an empty reason fails the test.
	Skip map[string]string
}

// Workload is what a container runs.
type Workload struct {
	// Image is the name of an image that the runtime has. Required.
	Image string
	// Command and Args replace the image's entry point and arguments where they
	// are not empty.
	Command, Args []string
	// Ready is the line that it writes to its standard output when it is ready
	// for a signal. Required but for Broken; one that ends by itself writes it
	// before.
	Ready string
	// ExitCode is the code that it ends with when nobody kills it.
	ExitCode int32
}

// Exec is a set of commands.
type Exec struct {
	// Print writes Output to its standard output and ends with code 0.
	Print  []string
	Output string
	// Fail ends with ExitCode, which is not 0.
	Fail     []string
	ExitCode int32
	// Sleep takes longer than a minute.
	Sleep []string
	// Missing is not in the image.
	Missing []string
}

// Shell returns the options for an image with /bin/sh and sleep in it, such as
// busybox, which the runtime must have.
func Shell(image, pull, missing string) Options {
	sh := func(script string, code int32) Workload {
		return Workload{Image: image, Command: []string{"/bin/sh", "-c", script}, Ready: ready, ExitCode: code}
	}
	const wait = `while :; do sleep 0.1 & wait $!; done`
	return Options{
		Sleeper:   sh(`trap 'exit 7' TERM; echo `+ready+`; `+wait, 7),
		Stubborn:  sh(`trap '' TERM; echo `+ready+`; `+wait, 0),
		Completer: sh(`echo `+ready, 0),
		Failer:    sh(`echo `+ready+`; exit 3`, 3),
		Broken:    Workload{Image: image, Command: []string{"/is/not/there"}},
		Exec: Exec{
			Print: []string{"/bin/sh", "-c", "echo out"}, Output: "out\n",
			Fail: []string{"/bin/sh", "-c", "exit 4"}, ExitCode: 4,
			Sleep: []string{"sleep", "100"}, Missing: []string{"/is/not/there"},
		},
		PullImage: pull, MissingImage: missing,
	}
}

// ready is the line by which the workloads of Shell say that they are.
const ready = "ready"

// Validate reports every problem with o, joined.
func (o Options) Validate() error {
	var errs []error
	require := func(field string, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("field %s is required", field))
		}
	}
	for _, w := range o.workloads() {
		require(w.field+".Image", w.Image != "")
		require(w.field+".Ready", w.Ready != "" || w.field == "Broken")
	}
	require("Failer.ExitCode", o.Failer.ExitCode != 0)
	require("Exec.Print", len(o.Exec.Print) > 0)
	require("Exec.Output", o.Exec.Output != "")
	require("Exec.Fail", len(o.Exec.Fail) > 0)
	require("Exec.ExitCode", o.Exec.ExitCode != 0)
	require("Exec.Sleep", len(o.Exec.Sleep) > 0)
	require("Exec.Missing", len(o.Exec.Missing) > 0)
	require("PullImage", o.PullImage != "")
	require("MissingImage", o.MissingImage != "")
	if o.CallTimeout < 0 || o.Settle < 0 || o.Grace < 0 || o.Grace%time.Second != 0 {
		errs = append(errs, errors.New("fields CallTimeout, Settle and Grace must not be negative, and Grace is whole seconds"))
	}
	names := Checks()
	for _, name := range slices.Sorted(maps.Keys(o.Skip)) {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("field Skip: there is no check %q", name))
		}
		if o.Skip[name] == "" {
			errs = append(errs, fmt.Errorf("field Skip: %q has no reason", name))
		}
	}
	return errors.Join(errs...)
}

type namedWorkload struct {
	field string
	Workload
}

func (o Options) workloads() []namedWorkload {
	return []namedWorkload{
		{"Sleeper", o.Sleeper},
		{"Stubborn", o.Stubborn},
		{"Completer", o.Completer},
		{"Failer", o.Failer},
		{"Broken", o.Broken},
	}
}

func (o Options) withDefaults() Options {
	o.CallTimeout = cmp.Or(o.CallTimeout, 30*time.Second)
	o.Settle = cmp.Or(o.Settle, 5*time.Second)
	o.Grace = cmp.Or(o.Grace, time.Second)
	return o
}
