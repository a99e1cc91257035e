package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A table is the content of a package's testdata/mutations.txt: the mutated files, and the
// result of each mutation.
type table struct {
	files []string
	rows  []row
}

// A row is the result of one mutation.
type row struct {
	number int
	site   string
	mark   string
	reason string // which test found it, or why it may survive
}

// The marks of a row: the comparison finds the mutation, our own tests find it, or it
// survives.
const (
	foundMark    = "found"
	ownMark      = "own test"
	survivedMark = "survived"
	filesMark    = "files: "
)

func (r row) String() string {
	reason := r.reason // the reason of a survivor is not shortened
	if r.mark == foundMark {
		reason = oneLine(reason)
	}
	return fmt.Sprintf("%-8s  %s\n              %s", r.mark, r.site, reason)
}

// unexplained counts the survivors without a reason.
func unexplained(rows []row) (n int) {
	for _, r := range rows {
		if r.mark == survivedMark && r.reason == "" {
			n++
		}
	}
	return n
}

func tablePath(pkg string) string { return filepath.Join(pkg, "testdata", "mutations.txt") }

// readTable reads a package's table. If the file does not exist, the table is empty.
func readTable(pkg string) (t table, err error) {
	data, err := os.ReadFile(tablePath(pkg))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	var open *row // the row whose reason is in the next line
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if files, ok := strings.CutPrefix(line, filesMark); ok {
			t.files = strings.Fields(files)
		}
		if open != nil {
			open.reason, open = line, nil
			continue
		}
		for _, mark := range []string{foundMark, ownMark, survivedMark} {
			if rest, ok := strings.CutPrefix(line, mark+" "); ok {
				t.rows = append(t.rows, row{number: len(t.rows) + 1, site: strings.TrimSpace(rest), mark: mark})
				open = &t.rows[len(t.rows)-1]
			}
		}
	}
	return t, nil
}

// reason returns the recorded reason for which a mutation may survive.
func (t table) reason(site string) string {
	for _, r := range t.rows {
		switch {
		case r.site != site || r.mark == foundMark:
		case r.mark == ownMark:
			_, reason, _ := strings.Cut(r.reason, byOwnTest)
			return strings.TrimPrefix(reason, ": ")
		default:
			return r.reason
		}
	}
	return ""
}

var errOtherCode = errors.New("the table is of other code or of another draw: run the comparison again")

// check returns an error if the table does not have exactly these mutations.
func (t table) check(sites []site) error {
	if len(sites) != len(t.rows) {
		return errOtherCode
	}
	for i := range sites {
		if sites[i].String() != t.rows[i].site {
			return fmt.Errorf("%w: %s", errOtherCode, sites[i])
		}
	}
	return nil
}

func writeTable(o options, rows []row, of int) error {
	count := map[string]int{}
	var b strings.Builder
	for _, r := range rows {
		count[r.mark]++
		fmt.Fprintln(&b, r)
	}
	without := unexplained(rows)
	head := fmt.Sprintf("# Mutations of our decision code, and how the comparison found each of them.\n"+
		"# Written by: go run ./mutate -write -n %d -seed %d %s\n"+
		"# %d mutations drawn from %d: %d found, %d found by our own tests alone, %d survive with a reason, %d without.\n%s%s\n\n",
		o.count, o.seed, o.pkg, len(rows), of, count[foundMark], count[ownMark], count[survivedMark]-without, without, filesMark, strings.Join(o.files, " "))
	if err := os.MkdirAll(filepath.Dir(tablePath(o.pkg)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(tablePath(o.pkg), []byte(head+b.String()), 0o644)
}
