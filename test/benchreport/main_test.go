package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFigures_BenchmarksAndTestsExist checks that the functions in the tables exist.
func TestFigures_BenchmarksAndTestsExist(t *testing.T) {
	known := map[string]map[string]bool{}
	exists := func(pkg, name string) {
		if known[pkg] == nil {
			known[pkg] = functions(t, filepath.Join("..", "..", pkg))
		}
		require.True(t, known[pkg][name], "%s has no %s", pkg, name)
	}
	for _, f := range figures() {
		name, _, _ := strings.Cut(f.bench, "/")
		exists(f.pkg, "Benchmark"+name)
	}
	for _, f := range heldFigures() {
		exists(f.pkg, f.test)
	}
}

// TestNodeFigures_IncludeEveryPrintedFigure checks that the end-to-end tests print the figures
// in the table.
func TestNodeFigures_IncludeEveryPrintedFigure(t *testing.T) {
	files, err := filepath.Glob("../e2e/*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(data)
	}
	known := map[string]bool{}
	for _, f := range nodeFigures() {
		known[f.name] = true
	}
	printed := regexp.MustCompile(`figure\(t, "([^"]+)"`).FindAllStringSubmatch(all.String(), -1)
	require.NotEmpty(t, printed)
	for _, m := range printed {
		require.True(t, known[m[1]], "the page does not show %s", m[1])
	}
}

func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

// TestPage_ContainsEveryFigure checks that the committed page has every figure of the
// tables and the costs of the example agent, and ends with the comparison of a node of a
// cluster.
func TestPage_ContainsEveryFigure(t *testing.T) {
	data, err := os.ReadFile("../../docs/benchmarks.md")
	require.NoError(t, err)
	for _, f := range figures() {
		require.Contains(t, string(data), "| "+f.what+" |", "run make bench-report")
	}
	for _, f := range nodeFigures() {
		require.Contains(t, string(data), "| "+f.what+" |", "run make bench-report")
	}
	agent, err := os.ReadFile("../../" + agentFile)
	require.NoError(t, err)
	require.Contains(t, string(data), string(agent), "run make bench-report")
	beside, err := os.ReadFile("../../" + besideFile)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(data), string(beside)), "run make bench-report")
}

func TestFigures_NamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures() {
		require.False(t, seen[f.key()], f.key())
		seen[f.key()] = true
	}
	for _, f := range nodeFigures() {
		require.False(t, seen[f.name], f.name)
		seen[f.name] = true
	}
}

const output = `goos: linux
goarch: amd64
pkg: github.com/kubeparts/kubeparts/pleg
cpu: Some CPU
BenchmarkDiff/pods=500-2         	   93548	     12835 ns/op	       0 B/op	       0 allocs/op
BenchmarkDiff/pods=500-2         	   93548	     13935 ns/op	       0 B/op	       0 allocs/op
PASS
pkg: github.com/kubeparts/kubeparts/lifecycle/podworker
BenchmarkKillOfAFinishedPod-2    	 5000000	       209 ns/op
BenchmarkIdle 	       1	 325.0 B/pod	 0.5 goroutines/pod
BenchmarkBroken garbage
    idle_test.go:70: figure: idle-rss 26.6 MiB
`

func TestParse(t *testing.T) {
	found := parseBench(output)
	require.Equal(t, map[string]float64{
		"pleg.Diff/pods=500 ns/op":                     12835,
		"pleg.Diff/pods=500 B/op":                      0,
		"pleg.Diff/pods=500 allocs/op":                 0,
		"lifecycle/podworker.KillOfAFinishedPod ns/op": 209,
		"lifecycle/podworker.Idle B/pod":               325,
		"lifecycle/podworker.Idle goroutines/pod":      0.5,
	}, found)
	require.Equal(t, map[string]float64{"idle-rss MiB": 26.6}, parseFigures(output))
	require.Contains(t, machine(output), "Some CPU, ")
	require.NotContains(t, missing(found), "lifecycle/podworker.Idle B/pod")
	require.Contains(t, missing(found), "podmanager/podsource.LoadFirst/manifests=1000 ns/op")

	text := page("a machine", found, map[string]float64{"idle-rss MiB": 26.6, "idle-cpu s": 0.5}, "## The agent\n", "Measured today.\n")
	require.Contains(t, text, "-->\n\n## The agent\n\n## A node of a cluster\n")
	require.Contains(t, text, "`make cluster-peer`. Measured today.\n")
	require.Contains(t, text, "| memory of an idle pod's worker | 325 B | ≤ 400 B | 5.4 KB |")
	require.Contains(t, text, "| 100 idle pods: memory | 26.6 MiB | ≤ 40 MiB | 109–114 MiB |")
	require.Contains(t, text, "| 100 idle pods: CPU a minute | 0.5 s **over** | ≤ 0.3 s | 3.2 s |")
	require.Equal(t, map[string]float64{"idle-rss MiB": 26.6, "idle-cpu s": 0.5}, parseFigures(text), "the page must contain the figures from which it was made")
}

func TestShow(t *testing.T) {
	for want, got := range map[string]string{
		"17 ns":       show(17, "ns/op"),
		"1.5 µs":      show(1500, "ns/op"),
		"2 ms":        show(2e6, "ns/op"),
		"1.2 s":       show(1.2e9, "ns/op"),
		"1536 B":      show(1536, "B/op"),
		"0 allocs":    show(0, "allocs/op"),
		"≤ 200 calls": bound(200, "calls"),
		"0":           number(0),
	} {
		require.Equal(t, want, got)
	}
}
