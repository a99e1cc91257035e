package housetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The maximum number of packages and modules that a package for users may link.
const (
	maxPackages = 180
	maxModules  = 26 // two are for the parser of image references
)

// mostLinked returns how many packages and modules the package in dir may link.
func mostLinked(dir string) (packages, modules int) {
	switch dir {
	case "agent":
		return 220, 35 // all managers
	case "agent/host", "agent/host/fakehost":
		return maxPackages, 27 // the parser of image references, for imagegc, in addition to agent/stats
	case "agent/kubeletapi":
		return 190, 31 // the agent, WebSocket and SPDY for exec, attach and port-forward
	case "agent/kubeletconfig":
		return maxPackages, 28 // two modules parse YAML with line numbers
	case "agent/metrics":
		return 195, 34 // the agent, and Prometheus, which no other package imports
	default:
		return maxPackages, maxModules
	}
}

// A weight is the number of packages and modules that users link with one of our packages.
// The standard library and this module do not count.
type weight struct {
	dir               string
	packages, modules int
}

// weigh returns the weights of all packages that users import or run, by name.
func weigh(all []listed) (weights []weight) {
	byPath := make(map[string]listed, len(all))
	for _, p := range all {
		byPath[p.ImportPath] = p
	}
	for _, p := range all {
		dir, ok := ours(p.ImportPath)
		if !ok || isInternal(dir) || within(dir, "test") {
			continue
		}
		w, modules := weight{dir: dir}, map[string]bool{}
		for _, dep := range p.Deps {
			d := byPath[dep]
			if d.Module == nil || d.Standard || d.Module.Path == modulePath {
				continue
			}
			w.packages++
			modules[d.Module.Path] = true
		}
		w.modules = len(modules)
		weights = append(weights, w)
	}
	slices.SortFunc(weights, func(a, b weight) int { return cmp.Compare(a.dir, b.dir) })
	return weights
}

// checkCeiling finds packages for users that are too heavy to be parts.
func checkCeiling(m *module) (found []finding) {
	for _, w := range weigh(m.listed) {
		packages, modules := mostLinked(w.dir)
		if isPublic(w.dir) && (w.packages > packages || w.modules > modules) {
			found = append(found, finding{w.dir, 1, fmt.Sprintf(
				"links %d packages of %d modules, at most %d and %d: see `go mod why`",
				w.packages, w.modules, packages, modules)})
		}
	}
	return found
}

// table formats weights as in the checked-in table.
func table(weights []weight) string {
	var b strings.Builder
	for _, w := range weights {
		fmt.Fprintf(&b, "%-28s %4d %3d\n", w.dir, w.packages, w.modules)
	}
	return b.String()
}

// compareWeights compares the weights with the checked-in table. After an intended change,
// `make golden` updates the table.
func compareWeights(t *testing.T, m *module) {
	t.Helper()
	datadriven.RunTest(t, "testdata/weight.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if d.Cmd != "weight" {
			d.Fatalf(t, "no such command")
		}
		return table(weigh(m.listed))
	})
}
