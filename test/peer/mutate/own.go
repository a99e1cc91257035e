package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// byOwnTest follows the name of the test that finds a mutation.
const byOwnTest = " finds it"

// tryOwn runs the tests of the mutated packages with each mutation that the comparison did
// not find, and records in the rows which test fails.
func (o options) tryOwn(ctx context.Context, sites []site, rows []row) error {
	binaries := map[string]string{}
	for i := range rows {
		r := &rows[i]
		if r.mark != survivedMark {
			continue
		}
		dir := filepath.Dir(sites[r.number-1].file)
		if binaries[dir] == "" {
			binaries[dir] = filepath.Join(o.scratch, strings.ReplaceAll(dir, "/", "_")+".test")
			if err := o.build(ctx, o.rootPath, "./"+dir, binaries[dir]); err != nil {
				return err
			}
		}
		t := ownTests{binary: binaries[dir], dir: filepath.Join(o.rootPath, dir)}
		if test := t.finds(ctx, r.number); test != "" {
			reason := test + " of " + dir + byOwnTest
			if r.reason != "" {
				reason += ": " + r.reason
			}
			r.mark, r.reason = ownMark, reason
		}
		fmt.Printf("%3d %s\n", r.number, *r)
	}
	return nil
}

// ownTests are the tests of one package.
type ownTests struct{ binary, dir string }

// finds returns a test that fails with a mutation and passes without it, or "".
func (t ownTests) finds(ctx context.Context, number int) string {
	failed := t.run(ctx, number, ".")
	if failed == "" || t.run(ctx, 0, "^"+failed+"$") != "" {
		return ""
	}
	return t.run(ctx, number, "^"+failed+"$")
}

// run runs the tests that match a pattern with a mutation, and returns the first failed test.
func (t ownTests) run(ctx context.Context, number int, pattern string) (failed string) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary, "-test.run", pattern, "-test.failfast", "-test.v", "-test.timeout", "60s")
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), "PEER_MUTANT="+strconv.Itoa(number))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return failedTest(string(out))
}

// failedTest returns the failed test from the output of go test: the first reported failure,
// or the last started test if the test binary crashed.
func failedTest(out string) (name string) {
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(rest, " ")
			return name
		}
		if rest, ok := strings.CutPrefix(line, "=== RUN   "); ok {
			name, _, _ = strings.Cut(strings.TrimSpace(rest), "/")
		}
	}
	return name
}
