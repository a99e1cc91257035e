// Command mutate tests a comparison with the kubelet: it makes small mutations of our
// decision code, one at a time, and checks that the comparison finds each.
//
//	go run ./mutate [flags] PACKAGE [FILE...]
//
// PACKAGE is a directory of this module that has a TestPeer, such as ./eviction. FILE is a
// file with decision code, relative to the root module, such as eviction/rank.go. The default
// is the files in the package's table.
//
// Mutations are drawn from all comparisons, logical operators, constants, arithmetic
// operators, returns, assignments, call statements and fields of composite literals in these
// files. Each kind has an equal share. An overlay compiles all mutations into one test
// binary, and PEER_MUTANT switches one on. A mutation is found if TestPeer fails, panics or
// does not end.
//
// If the comparison does not find a mutation, the command runs the tests of the mutated
// package with it. This is necessary because the kubelet has no counterpart of some results
// of our packages: error texts, observers, log messages. The table names the test that finds
// the mutation.
//
// With -write, the command writes the result to the package's table, testdata/mutations.txt.
// If neither the comparison nor the tests find a mutation, the mutation survives, and needs an
// explanation. Write the reason after "survived" in the table. The command keeps it. The exit
// code is 1 if a mutation survives without a reason. With -survivors, the command does not run
// the comparison again. It only runs our own tests with the mutations that the table marks as
// survived.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	o := options{}
	flag.IntVar(&o.count, "n", 40, "how many mutations to draw")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the draw")
	flag.StringVar(&o.scenarios, "scenarios", "", "how many scenarios TestPeer plays, if not its own number")
	flag.StringVar(&o.only, "only", "", "run only the mutations with these numbers, as in 3,7; of a single one, print the test's output")
	flag.BoolVar(&o.survivors, "survivors", false, "run only our own tests, with the mutations that survived by the table")
	flag.BoolVar(&o.write, "write", false, "write the table testdata/mutations.txt of the package")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.pkg, o.files = flag.Arg(0), flag.Args()[1:]
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	count            int
	seed             uint64
	scenarios, only  string
	write, survivors bool
	pkg              string
	files            []string
	binary, rootPath string
	scratch          string
}

var errSurvived = errors.New("mutations survive without a reason: the scenarios lack a case")

func run(ctx context.Context, o options) error {
	table, err := readTable(o.pkg)
	if err != nil {
		return err
	}
	if len(o.files) == 0 {
		o.files = table.files
	}
	if len(o.files) == 0 {
		return errors.New("no files to mutate: name them, or write them into the table")
	}
	if o.rootPath, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	o.binary, o.scratch = filepath.Join(scratch, "peer.test"), scratch

	all, err := findSites(o.rootPath, o.files)
	if err != nil {
		return err
	}
	sites := draw(all, o.count, o.seed)
	if sites, err = o.prepare(sites); err != nil {
		return err
	}
	fmt.Printf("%d mutations, drawn from %d\n", len(sites), len(all))
	rows := table.rows
	if o.survivors {
		err = table.check(sites)
	} else {
		rows, err = o.compare(ctx, sites, table)
	}
	if err != nil {
		return err
	}
	if err := o.tryOwn(ctx, sites, rows); err != nil {
		return err
	}
	if o.write && o.only == "" {
		if err := writeTable(o, rows, len(all)); err != nil {
			return err
		}
	}
	if n := unexplained(rows); n > 0 {
		return fmt.Errorf("%d of %d %w", n, len(rows), errSurvived)
	}
	return nil
}

// compare runs the comparison with each mutation.
func (o options) compare(ctx context.Context, sites []site, table table) ([]row, error) {
	if err := o.build(ctx, ".", o.pkg, o.binary); err != nil {
		return nil, err
	}
	if err := o.check(ctx); err != nil {
		return nil, err
	}
	return o.try(ctx, sites, table), nil
}

// check runs the test without a mutation. It returns an error if the test fails.
func (o options) check(ctx context.Context) error {
	if found, text := o.test(ctx, 0); found {
		return fmt.Errorf("%s fails without a mutation: %s", o.pkg, text)
	}
	return nil
}

// try runs the test with each mutation.
func (o options) try(ctx context.Context, sites []site, table table) (rows []row) {
	for i, s := range sites {
		number := i + 1
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), strconv.Itoa(number)) {
			continue
		}
		found, text := o.test(ctx, number)
		r := row{number: number, site: s.String(), mark: foundMark, reason: text}
		if !found {
			r.mark, r.reason = survivedMark, table.reason(s.String())
		}
		fmt.Printf("%3d %s\n", number, r)
		rows = append(rows, r)
	}
	return rows
}

// longest is the timeout of a test. A test that exceeds it counts as failed.
const longest = 3 * time.Minute

// test runs TestPeer with a mutation and reports whether it failed, and how.
func (o options) test(ctx context.Context, number int) (found bool, text string) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary, "-test.run", "^TestPeer", "-test.failfast", "-test.timeout", (longest - 10*time.Second).String())
	cmd.Dir = o.pkg
	cmd.Env = append(os.Environ(), "PEER_MUTANT="+strconv.Itoa(number), "PEER_N="+o.scenarios)
	out, err := cmd.CombinedOutput()
	if o.only == strconv.Itoa(number) {
		fmt.Print(string(out))
	}
	if err == nil {
		return false, ""
	}
	for line := range strings.Lines(string(out)) {
		for _, sign := range []string{"found: ", "panic: ", "rule \"", "fatal error: "} {
			if i := strings.Index(line, sign); i >= 0 {
				return true, strings.TrimSpace(line[i:])
			}
		}
	}
	return true, "the test fails"
}

// prepare writes the overlay with all mutations, and returns those that compile.
func (o options) prepare(sites []site) ([]site, error) {
	for {
		replaced, err := overlay(o.rootPath, o.scratch, sites)
		if err != nil {
			return nil, err
		}
		bad, err := broken(o.rootPath, o.files, replaced)
		if err != nil {
			return nil, err
		}
		if len(bad) > 0 {
			kept := slices.Clone(sites)
			for _, n := range slices.Backward(bad) {
				kept = slices.Delete(kept, n-1, n)
			}
			sites = kept
			continue
		}
		data, err := json.Marshal(map[string]any{"Replace": replaced})
		if err != nil {
			return nil, err
		}
		return sites, os.WriteFile(o.overlayFile(), data, 0o600)
	}
}

func (o options) overlayFile() string { return filepath.Join(o.scratch, "overlay.json") }

// build builds the test binary of a package with the overlay, in the module of a directory.
func (o options) build(ctx context.Context, dir, pkg, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-ldflags=-s -w", "-overlay", o.overlayFile(), "-c", "-o", binary, pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	return cmd.Run()
}
