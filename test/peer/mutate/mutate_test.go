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
				require.Contains(t, string(data), fmt.Sprintf("%s%d*/", marker, i+1), "a mutation has no switch")
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

// TestDraw_SharesKinds checks that each kind of mutation has an equal share.
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
	require.Len(t, draw(all, 1000, 1), len(all), "draw must return all mutations if count is larger")
}

// TestTable_KeepsReasons checks that the next run keeps the reason of a survivor, even if one
// of our tests finds the mutation.
func TestTable_KeepsReasons(t *testing.T) {
	dir := t.TempDir()
	const survivor, own, found = "a/b.go F constant: `1` -> `1 + 1`", "a/b.go G call: `f()` -> `left out`", "a/b.go H return: `return 1` -> `return 0`"
	o := options{pkg: dir, files: []string{"a/b.go"}, count: 3, seed: 1}
	rows := []row{
		{site: survivor, mark: survivedMark, reason: "equivalent, but TestF finds it in part"},
		{site: own, mark: ownMark, reason: "TestG of a finds it: the kubelet has no f"},
		{site: found, mark: foundMark, reason: "found: step 1"},
	}
	require.NoError(t, writeTable(o, rows, 7))
	table, err := readTable(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a/b.go"}, table.files)
	require.Equal(t, "equivalent, but TestF finds it in part", table.reason(survivor))
	require.Equal(t, "the kubelet has no f", table.reason(own))
	require.Empty(t, table.reason(found))
	for i := range rows {
		rows[i].number = i + 1
	}
	require.Equal(t, rows, table.rows)
	require.ErrorIs(t, table.check(nil), errOtherCode)
	require.Zero(t, unexplained(rows))
	rows[0].reason = ""
	require.Equal(t, 1, unexplained(rows))
}

// TestFailedTest extracts the name of the failed test from the output of go test.
func TestFailedTest(t *testing.T) {
	require.Equal(t, "TestB", failedTest("=== RUN   TestA\n--- PASS: TestA (0.0s)\n=== RUN   TestB\n=== RUN   TestB/c\n--- FAIL: TestB (0.0s)\n    --- FAIL: TestB/c (0.0s)\n"))
	require.Equal(t, "TestB", failedTest("=== RUN   TestB\n=== RUN   TestB/c\npanic: x\n"), "output of a test binary that panicked")
	require.Empty(t, failedTest("FAIL\n"))
}
