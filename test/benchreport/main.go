// Benchreport measures the costs of the packages and writes docs/benchmarks.md. The
// page shows each figure with its bound and with the cost of the kubelet. `make
// bench-report` runs it.
//
// Figures of whole nodes need a machine with a runtime. If -e2e names a file with the
// output of `make e2e`, Benchreport reads these figures from the lines "figure: NAME
// VALUE UNIT" in the file. Otherwise it copies them from the existing page. The comparison
// of a node of a cluster with the kubelet is the table that `make cluster-peer` has written.
// The costs of the example agent are a file with results of `make bench-node`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const (
	// agentFile has the costs of the example agent, written by hand from the output of
	// `make bench-node`.
	agentFile = "test/nodecost/testdata/agent.md"
	// besideFile has the table that `make cluster-peer` writes.
	besideFile = "test/clusterbed/testdata/beside.md"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("o", "docs/benchmarks.md", "the page to write")
	e2e := flag.String("e2e", "", "file with the output of make e2e; if empty, the page keeps its figures of nodes")
	benchtime := flag.String("benchtime", "200ms", "duration or number of iterations of each benchmark, as for go test")
	count := flag.Int("count", 8, "number of runs of each benchmark; the smallest value is reported, because other work on the machine affects it least")
	flag.Parse()
	if err := run(ctx, *out, *e2e, *benchtime, *count); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, e2e, benchtime string, count int) error {
	source := e2e
	if source == "" {
		source = out // a comment in the page contains the lines "figure: NAME VALUE UNIT"
	}
	nodes, err := readFigures(source)
	if err != nil && (e2e != "" || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	agent, err := os.ReadFile(agentFile)
	if err != nil {
		return err
	}
	beside, err := os.ReadFile(besideFile)
	if err != nil {
		return err
	}
	var log strings.Builder
	for _, f := range benchmarks() {
		fmt.Fprintln(os.Stderr, "measuring", f.pkg, f.bench)
		if err := bench(ctx, &log, f, benchtime, count); err != nil {
			return fmt.Errorf("%s: %w\n%s", f.pkg, err, log.String())
		}
	}
	found := parseBench(log.String())
	if missing := missing(found); len(missing) > 0 {
		return fmt.Errorf("not measured: %s", strings.Join(missing, ", "))
	}
	return os.WriteFile(out, []byte(page(machine(log.String()), found, nodes, string(agent), string(beside))), 0o644)
}

// benchmarks returns the benchmarks of the page, each once, in the order of the page.
func benchmarks() (all []figure) {
	for _, f := range figures() {
		if !slices.ContainsFunc(all, func(o figure) bool { return o.pkg == f.pkg && o.bench == f.bench }) {
			all = append(all, f)
		}
	}
	return all
}

// bench runs one benchmark count times.
func bench(ctx context.Context, log io.Writer, f figure, benchtime string, count int) error {
	pattern := "^Benchmark" + strings.ReplaceAll(f.bench, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-benchmem",
		"-benchtime="+benchtime, fmt.Sprintf("-count=%d", count), "./"+f.pkg)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// missing returns the figures of the page that found does not contain.
func missing(found map[string]float64) (names []string) {
	for _, f := range figures() {
		if _, ok := found[f.key()]; !ok {
			names = append(names, f.key())
		}
	}
	return names
}

// machine describes the machine on which the benchmarks ran.
func machine(log string) string {
	cpu := "unknown CPU"
	if m := regexp.MustCompile(`(?m)^cpu: (.+)$`).FindStringSubmatch(log); m != nil {
		cpu = m[1]
	}
	return fmt.Sprintf("%s, %d CPUs, %s/%s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
