// Command mutate tests a comparison with the kubelet: it makes small mutations of
// our decision code, one at a time, and checks that the comparison finds each.
//
//	go run ./mutate [flags] PACKAGE [FILE...]
//
// PACKAGE is a folder of this module that has a TestPeer, such as ./eviction. The
// files are those that decide, relative to the root module, such as
// eviction/rank.go; without any, they are those of the package's table.
//
// A mutation is drawn from every comparison, logical operator, constant,
// arithmetic operator, return, assignment, call statement and field of a
// composite literal in these files: each kind has an equal share. All mutations
// are compiled into one test binary, by an overlay, and PEER_MUTANT switches one on.
// A mutation is found when TestPeer fails, panics or does not end.
//
// With -write, the result goes into the package's table, testdata/mutations.txt. A
// mutation that changes nothing observable survives, and must be explained: write
// the reason behind "survived" in the table, and the tool keeps it. It exits with 1
// if a mutation survives without a reason.
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
	write            bool
	pkg              string
	files            []string
	binary, rootPath string
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
	o.binary = filepath.Join(scratch, "peer.test")

	all, err := findSites(o.rootPath, o.files)
	if err != nil {
		return err
	}
	sites := draw(all, o.count, o.seed)
	if sites, err = compile(ctx, o, scratch, sites); err != nil {
		return err
	}
	fmt.Printf("%d mutations, drawn from %d\n", len(sites), len(all))
	if err := o.check(ctx); err != nil {
		return err
	}
	return o.try(ctx, sites, table, len(all))
}

// check runs the test without a mutation: it must pass.
func (o options) check(ctx context.Context) error {
	if found, text := o.test(ctx, 0); found {
		return fmt.Errorf("%s fails without a mutation: %s", o.pkg, text)
	}
	return nil
}

// try runs the test with each mutation.
func (o options) try(ctx context.Context, sites []site, table table, of int) error {
	var rows []row
	survived := 0
	for i, s := range sites {
		number := i + 1
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), strconv.Itoa(number)) {
			continue
		}
		found, text := o.test(ctx, number)
		r := row{site: s, found: found, reason: text}
		if !found {
			r.reason = table.reason(s)
			if r.reason == "" {
				survived++
			}
		}
		fmt.Printf("%3d %s\n", number, r)
		rows = append(rows, r)
	}
	if o.write && o.only == "" {
		if err := writeTable(o, rows, of); err != nil {
			return err
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d %w", survived, len(rows), errSurvived)
	}
	return nil
}

// longest is how long a test may run before it counts as one that does not end.
const longest = 3 * time.Minute

// test runs TestPeer with a mutation and reports whether it failed, and how.
func (o options) test(ctx context.Context, number int) (found bool, text string) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary, "-test.run", "^TestPeer", "-test.timeout", (longest - 10*time.Second).String())
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

// compile builds the test binary with all mutations, and returns those that
// compile.
func compile(ctx context.Context, o options, scratch string, sites []site) ([]site, error) {
	for {
		replaced, err := overlay(o.rootPath, scratch, sites)
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
		file := filepath.Join(scratch, "overlay.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-ldflags=-s -w", "-overlay", file, "-c", "-o", o.binary, o.pkg)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return sites, cmd.Run()
	}
}
