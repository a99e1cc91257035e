package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A table is what testdata/mutations.txt of a package has: the files that were
// mutated, and why a mutation may survive.
type table struct {
	files   []string
	reasons map[string]string
}

// A row is the result of one mutation.
type row struct {
	site   site
	found  bool
	reason string // how it was found, or why it may survive
}

const (
	foundMark    = "found"
	survivedMark = "survived"
	filesMark    = "files: "
)

func (r row) String() string {
	mark, reason := survivedMark, r.reason // the reason of a survivor stays whole
	if r.found {
		mark, reason = foundMark, oneLine(r.reason)
	}
	return fmt.Sprintf("%-8s  %s\n              %s", mark, r.site, reason)
}

func tablePath(pkg string) string { return filepath.Join(pkg, "testdata", "mutations.txt") }

// readTable reads a package's table. One that does not exist is empty.
func readTable(pkg string) (table, error) {
	t := table{reasons: map[string]string{}}
	data, err := os.ReadFile(tablePath(pkg))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	survivor := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if files, ok := strings.CutPrefix(line, filesMark); ok {
			t.files = strings.Fields(files)
		}
		if survivor != "" {
			t.reasons[survivor] = line
		}
		survivor = ""
		if rest, ok := strings.CutPrefix(line, survivedMark); ok {
			survivor = strings.TrimSpace(rest)
		}
	}
	return t, nil
}

// reason returns why a mutation may survive, as the table has it.
func (t table) reason(s site) string { return t.reasons[s.String()] }

func writeTable(o options, rows []row, of int) error {
	found, explained := 0, 0
	var b strings.Builder
	for _, r := range rows {
		switch {
		case r.found:
			found++
		case r.reason != "":
			explained++
		}
		fmt.Fprintln(&b, r)
	}
	head := fmt.Sprintf("# Mutations of our decision code, and how the comparison found each of them.\n"+
		"# Written by: go run ./mutate -write -n %d -seed %d %s\n"+
		"# %d mutations drawn from %d: %d found, %d survive with a reason, %d without.\n%s%s\n\n",
		o.count, o.seed, o.pkg, len(rows), of, found, explained, len(rows)-found-explained, filesMark, strings.Join(o.files, " "))
	if err := os.MkdirAll(filepath.Dir(tablePath(o.pkg)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(tablePath(o.pkg), []byte(head+b.String()), 0o644)
}
