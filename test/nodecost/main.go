// Nodecost measures the CPU, memory and CRI calls of the example agent. It runs the agent
// in several scenarios: idle pods, pods with probes, and pods that are replaced. The
// container runtime is a fake (package fakecri). Nodecost starts it in a second process,
// which serves the CRI on a unix socket. `make bench-node` runs Nodecost.
//
// With two programs, such as the agent before and after a change, the runs alternate.
// Changes of the machine's speed then affect both programs equally:
//
//	go run ./test/nodecost -agent before=/tmp/old -agent after=/tmp/new -rounds 5
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is an agent to measure.
type program struct{ name, path string }

type options struct {
	agents    []program
	pods      []int
	scenarios *regexp.Regexp
	length    time.Duration
	rounds    int
	profiles  string // folder, empty for none
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := do(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodecost:", err)
		os.Exit(1)
	}
}

func do(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == serveCommand {
		return serveRuntime(ctx, args[1], args[2] == "true", os.Stdin, os.Stdout)
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(o.agents) == 0 {
		dir, err := os.MkdirTemp("", "nodecost")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path := filepath.Join(dir, "agent")
		build := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", path, "./examples/minimal-agent")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the agent: %w", err)
		}
		o.agents = []program{{"agent", path}}
	}
	return measureAll(ctx, o)
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("nodecost", flag.ContinueOnError)
	flags.Func("agent", "NAME=FILE, a program to measure; may be repeated (default: minimal-agent, built from ./examples/minimal-agent)", func(s string) error {
		name, path, ok := strings.Cut(s, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want NAME=FILE")
		}
		o.agents = append(o.agents, program{name, path})
		return nil
	})
	pods := flags.String("pods", "110,500", "numbers of pods, separated by commas")
	only := flags.String("run", "", "regular expression for the scenarios to run, such as churn/")
	flags.DurationVar(&o.length, "for", time.Minute, "how long each scenario is measured")
	flags.IntVar(&o.rounds, "rounds", 1, "number of runs of each scenario with each program")
	flags.StringVar(&o.profiles, "profiles", "", "folder for CPU and allocation profiles of each run; profiling itself uses CPU time")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	for text := range strings.SplitSeq(*pods, ",") {
		n, err := strconv.Atoi(text)
		if err == nil && (n < 1 || n > maxPods) {
			err = fmt.Errorf("want 1 to %d", maxPods)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("-pods: %q: %w", text, err))
		}
		o.pods = append(o.pods, n)
	}
	var err error
	if o.scenarios, err = regexp.Compile(*only); err != nil {
		errs = append(errs, fmt.Errorf("-run: %w", err))
	}
	if o.length < time.Second || o.rounds < 1 || flags.NArg() > 0 {
		errs = append(errs, errors.New("want -for of at least 1s, -rounds of at least 1, and no arguments after the flags"))
	}
	return o, errors.Join(errs...)
}

// measureAll runs all scenarios, and prints the table of each scenario as soon as the table
// is complete.
func measureAll(ctx context.Context, o options) error {
	ran := 0
	for _, pods := range o.pods {
		for _, s := range scenarios() {
			name := fmt.Sprintf("%s/pods=%d", s.name, pods)
			if !o.scenarios.MatchString(name) {
				continue
			}
			results := make([][]figures, len(o.agents))
			for round := range o.rounds {
				for i := range o.agents {
					// Rotate the order, so that each program runs first equally often.
					i = (i + round) % len(o.agents)
					r := run{o.agents[i], s, pods, o.length, ""}
					if o.profiles != "" {
						r.profile = filepath.Join(o.profiles, fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(name, "/", "-"), r.agent.name, round))
					}
					got, err := r.measure(ctx)
					if err != nil {
						return fmt.Errorf("%s: %s: %w", name, o.agents[i].name, err)
					}
					results[i] = append(results[i], got)
				}
			}
			ran++
			fmt.Print(table(name, o.agents, results))
		}
	}
	if ran == 0 {
		return errors.New("no scenario matches -run")
	}
	return nil
}

// median returns the median, the minimum and the maximum of values.
func median(values []float64) (middle, least, most float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}
