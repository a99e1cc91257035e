package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMutations writes each mutation of a small file, alone and all together, and
// type-checks the result. See testdata/mutations.
func TestMutations(t *testing.T) {
	datadriven.RunTest(t, "testdata/mutations", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		root := t.TempDir()
		write(t, root, "go.mod", "module example.com/sample\n\ngo 1.26\n")
		write(t, root, "sample/sample.go", "package sample\n\n"+d.Input+"\n")
		all, err := findSites(root, []string{"sample/sample.go"})
		require.NoError(t, err)
		switch d.Cmd {
		case "list":
			var b strings.Builder
			for _, s := range draw(all, len(all), 1) {
				b.WriteString(strings.TrimPrefix(s.String(), "sample/sample.go ") + "\n")
			}
			return b.String()
		case "write":
			replaced, err := overlay(root, t.TempDir(), draw(all, len(all), 1))
			require.NoError(t, err)
			bad, err := broken(root, []string{"sample/sample.go"}, replaced)
			require.NoError(t, err)
			require.Empty(t, bad, "mutations that do not compile")
			data, err := os.ReadFile(replaced[filepath.Join(root, "sample/sample.go")])
			require.NoError(t, err)
			for i := range draw(all, len(all), 1) {
				require.Contains(t, string(data), fmt.Sprintf("%s%d*/", marker, i+1), "a mutation that is never switched on")
			}
			data, err = format.Source(data)
			require.NoError(t, err)
			return string(data)
		}
		d.Fatalf(t, "no such command")
		return ""
	})
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestDraw_SharesKinds checks that each kind of mutation has its share.
func TestDraw_SharesKinds(t *testing.T) {
	var all []site
	for range 100 {
		all = append(all, site{kind: "constant"})
	}
	all = append(all, site{kind: "comparison"}, site{kind: "return"})
	kinds := map[string]int{}
	for _, s := range draw(all, 6, 1) {
		kinds[s.kind]++
	}
	require.Equal(t, map[string]int{"constant": 4, "comparison": 1, "return": 1}, kinds)
	require.Len(t, draw(all, 1000, 1), len(all), "no more than there are")
}

// TestTable_KeepsReasons checks that the reason behind a survivor outlives the next
// run.
func TestTable_KeepsReasons(t *testing.T) {
	dir := t.TempDir()
	s := site{kind: "constant", file: "a/b.go", function: "F", before: "1", after: "1 + 1"}
	o := options{pkg: dir, files: []string{"a/b.go"}}
	rows := []row{{site: s, reason: "equivalent: only its sign counts"}, {site: site{kind: "return"}, found: true, reason: "found: step 1"}}
	require.NoError(t, writeTable(o, rows, 7))
	table, err := readTable(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a/b.go"}, table.files)
	require.Equal(t, "equivalent: only its sign counts", table.reason(s))
	require.Empty(t, table.reason(site{kind: "return"}))
}
