// Benchreport measures every figure that the packages are held to and writes
// docs/benchmarks.md: each beside what it had to beat. `make bench-report` runs it.
//
// Figures of whole nodes need a machine with a runtime. They come from the output of
// `make e2e`, if -e2e names a file that has it: lines with "figure: NAME VALUE UNIT".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("o", "docs/benchmarks.md", "the page to write")
	e2e := flag.String("e2e", "", "file with the output of make e2e; without one the page keeps the figures of nodes that it has")
	benchtime := flag.String("benchtime", "1s", "as of go test")
	flag.Parse()
	if err := run(ctx, *out, *e2e, *benchtime); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, e2e, benchtime string) error {
	source := e2e
	if source == "" {
		source = out // its own table has the lines that it was made from
	}
	nodes, err := readFigures(source)
	if err != nil && (e2e != "" || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	var log strings.Builder
	for _, pkg := range packages() {
		fmt.Fprintln(os.Stderr, "measuring", pkg)
		if err := bench(ctx, &log, pkg, benchtime); err != nil {
			return fmt.Errorf("%s: %w\n%s", pkg, err, log.String())
		}
	}
	found := parseBench(log.String())
	if missing := missing(found); len(missing) > 0 {
		return fmt.Errorf("not measured: %s", strings.Join(missing, ", "))
	}
	return os.WriteFile(out, []byte(page(machine(log.String()), found, nodes)), 0o644)
}

// packages are those of the table, each once, in its order.
func packages() (all []string) {
	for _, f := range figures() {
		if !slices.Contains(all, f.pkg) {
			all = append(all, f.pkg)
		}
	}
	return all
}

// bench runs the benchmarks of one package that the table asks for.
func bench(ctx context.Context, log io.Writer, pkg, benchtime string) error {
	names := map[string]bool{}
	for _, f := range figures() {
		if f.pkg == pkg {
			name, _, _ := strings.Cut(f.bench, "/")
			names[name] = true
		}
	}
	pattern := "^Benchmark(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-benchmem", "-benchtime="+benchtime, "./"+pkg)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// missing names what the table has and the output has not.
func missing(found map[string]float64) (names []string) {
	for _, f := range figures() {
		if _, ok := found[f.key()]; !ok {
			names = append(names, f.key())
		}
	}
	return names
}

// machine says on what was measured.
func machine(log string) string {
	cpu := "unknown CPU"
	if m := regexp.MustCompile(`(?m)^cpu: (.+)$`).FindStringSubmatch(log); m != nil {
		cpu = m[1]
	}
	return fmt.Sprintf("%s, %d CPUs, %s/%s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
