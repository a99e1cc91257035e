package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Options configures [Test]: the workloads that Test runs and how long it waits. Test copies the
// options. [Shell] returns options for an image that has a shell.
type Options struct {
	// Sleeper runs until it gets SIGTERM and then exits at once with ExitCode. Required. The checks
	// of exec and of resource updates also use it.
	Sleeper Workload
	// Stubborn runs for minutes and ignores SIGTERM. Required.
	Stubborn Workload
	// Completer exits by itself within ChangeTimeout, with code 0. Required.
	Completer Workload
	// Failer exits by itself within ChangeTimeout, with ExitCode, which is not 0. Required.
	Failer Workload
	// Broken cannot be started, for example because its command is not in the
	// image. Required.
	Broken Workload
	// Exec are commands that can be run in Sleeper. Required.
	Exec Exec
	// PullImage is an image that can be pulled without credentials. The test removes it, so
	// nothing else may use it. Required.
	PullImage string
	// MissingImage is a valid name of an image that does not exist and cannot be pulled.
	// Required.
	MissingImage string

	// CgroupParent is the parent cgroup of the pods, as in LinuxPodSandboxConfig. If it is
	// empty, the runtime chooses.
	CgroupParent string
	// LogRoot is a folder below which the runtime writes logs and the test reads them.
	// Default: a temporary folder of the test.
	LogRoot string

	// CallTimeout is the timeout of each call to the runtime. Default 30s.
	CallTimeout time.Duration
	// ChangeTimeout is how long the test waits for a change that happens without a call. It is
	// also the time by which a stop may exceed its grace period. Default 5s.
	ChangeTimeout time.Duration
	// Grace is the grace period of stops in the test, in whole seconds. Default 1s.
	Grace time.Duration

	// Skip contains the names of the checks that the test must not run, each with the reason that
	// the test reports. [Checks] returns the names; an unknown name or an empty reason fails the
	// test.
	Skip map[string]string
}

// Workload is the program of a container.
type Workload struct {
	// Image is the name of an image that the runtime has. Required.
	Image string
	// Command and Args replace the image's entry point and arguments if they are not empty.
	Command, Args []string
	// Ready is the line that the program writes to its standard output when it is ready for a
	// signal, or before it exits by itself. Required except for Broken.
	Ready string
	// ExitCode is the exit code if the program is not killed.
	ExitCode int32
}

// Exec has the commands that the test runs in Sleeper.
type Exec struct {
	// Print is a command that writes Output to its standard output and exits with code 0.
	Print  []string
	Output string
	// Fail is a command that exits with ExitCode, which is not 0.
	Fail     []string
	ExitCode int32
	// Sleep is a command that takes longer than a minute.
	Sleep []string
	// Missing is a command that is not in the image.
	Missing []string
}

// Shell returns options for an image that has /bin/sh and sleep, such as busybox. The runtime must
// have the image. The second argument is the PullImage, and the third argument is the MissingImage.
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

// ready is the Ready line of the workloads of Shell.
const ready = "ready"

// Validate returns all problems with o as one joined error.
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
	if o.CallTimeout < 0 || o.ChangeTimeout < 0 || o.Grace < 0 || o.Grace%time.Second != 0 {
		errs = append(errs, errors.New("fields CallTimeout, ChangeTimeout and Grace must not be negative, and Grace is whole seconds"))
	}
	names := Checks()
	for _, name := range slices.Sorted(maps.Keys(o.Skip)) {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("field Skip: unknown check %q", name))
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
	o.ChangeTimeout = cmp.Or(o.ChangeTimeout, 5*time.Second)
	o.Grace = cmp.Or(o.Grace, time.Second)
	return o
}
