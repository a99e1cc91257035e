package housetest

import (
	"slices"
	"strconv"
)

// edges returns, for each package of this module, the other packages of this module that it
// may import. [mayImport] has the imports that all packages may have. The table may contain
// packages that do not exist yet.
func edges() map[string][]string {
	return map[string][]string{
		"agent": slices.Concat(managers(), []string{
			"agent/cri", "agent/host", "agent/state", "agent/stats",
			"agent/internal/nodeloop", "agent/internal/podloop", "agent/internal/report",
		}),
		"agent/cri":           {"pleg/wirelist"},
		"agent/host":          {"agent/stats", "eviction", "imagegc", "lifecycle/volumes", "oomwatch"},
		"agent/host/fakehost": {"agent/host", "agent/stats", "eviction", "fakecri", "imagegc"},
		// The parts of the agent import neither the agent nor each other.
		"agent/internal/nodeloop": slices.Concat(managers(), []string{"agent/host", "agent/state"}),
		"agent/internal/podloop":  slices.Concat(managers(), []string{"agent/state"}),
		"agent/internal/report":   slices.Concat(managers(), []string{"agent/state"}),
		"agent/kubeletconfig": {
			"containergc/logrotate", "eviction", "imagegc", "lifecycle", "lifecycle/cgroups", "lifecycle/images",
			"lifecycle/podrunner", "lifecycle/podworker",
		},
		"agent/metrics": {
			"agent", "agent/stats", "containergc", "containergc/logrotate", "eviction", "imagegc", "lifecycle", "lifecycle/images", "lifecycle/podrunner",
			"lifecycle/podspec", "lifecycle/podworker", "lifecycle/volumes", "lifecycle/cgroups", "oomwatch", "pleg", "podcache", "prober", "status",
		},
		"agent/kubeletapi": {
			"agent", "agent/kubeletapi/api", "agent/kubeletapi/eventlog", "agent/kubeletapi/internal/describe", "agent/kubeletapi/podlogs",
			"containergc", "eviction", "imagegc", "lifecycle/podrunner", "lifecycle/podspec", "podcache", "prober",
		},
		"agent/kubeletapi/api":               {},
		"agent/kubeletapi/api/stream":        {"agent/kubeletapi/api"},
		"agent/kubeletapi/eventlog":          {"agent/kubeletapi/api"},
		"agent/kubeletapi/internal/describe": {"agent", "agent/kubeletapi/api", "lifecycle/podspec", "prober"},
		"agent/kubeletapi/podlogs":           {},
		"agent/state":                        {},
		"agent/stats":                        {"eviction"},
		"podcache":                           {},
		"pleg":                               {"podcache"},
		"pleg/wirelist":                      {},
		"podmanager":                         {"lifecycle/podspec"},
		"podmanager/podsource":               {"lifecycle/podspec"},
		"lifecycle":                          {"lifecycle/podspec"},
		"lifecycle/podspec":                  {},
		"lifecycle/podworker":                {"lifecycle", "lifecycle/podspec", "podcache"},
		"lifecycle/podrunner":                {"lifecycle", "lifecycle/images", "lifecycle/podspec", "lifecycle/podworker", "lifecycle/resources", "podcache"},
		"lifecycle/images":                   {"lifecycle", "lifecycle/podspec"},
		"lifecycle/cgroups":                  {"lifecycle/podspec"},
		"lifecycle/resources":                {"lifecycle", "lifecycle/podspec", "podcache"},
		"lifecycle/volumes":                  {"lifecycle/podspec"},
		"prober":                             {"lifecycle/podspec"},
		"prober/grpcprobe":                   {"prober"},
		"status":                             {"podcache", "lifecycle/podspec"},
		"status/nodestatus":                  {},
		"eviction":                           {"lifecycle", "lifecycle/podspec"},
		"imagegc":                            {"status/nodestatus"},
		"containergc":                        {},
		"containergc/logrotate":              {},
		"oomwatch":                           {},
		"fakecri":                            {},
		"fakecri/conformance":                {},
		"fakecri/streaming":                  {"fakecri"},
		"internal/atomicfile":                {},
		"internal/backoff":                   {},
		"internal/coalesce":                  {},
		"internal/expansion":                 {},
		"internal/filelock":                  {},
		"internal/imageref":                  {},
		"internal/loop":                      {},
		"internal/quantity":                  {},
		"internal/crilabels":                 {},
		"internal/podips":                    {},
		"internal/podlimits":                 {"lifecycle/podspec"},
		"internal/podlock":                   {},
		"internal/priority":                  {},
		"internal/printable":                 {},
		"internal/safeopen":                  {},
		"internal/housetest":                 {},
		"examples/minimal-agent":             {"*"},
	}
}

// managers returns the packages that the agent combines. It does not include podsource,
// because a program chooses its own sources.
func managers() []string {
	return []string{
		"containergc", "containergc/logrotate", "eviction", "imagegc", "lifecycle", "lifecycle/cgroups", "lifecycle/images",
		"lifecycle/podrunner", "lifecycle/podspec", "lifecycle/podworker", "lifecycle/resources", "lifecycle/volumes", "oomwatch",
		"pleg", "pleg/wirelist", "podcache", "podmanager", "prober", "prober/grpcprobe", "status", "status/nodestatus",
	}
}

// isFake reports whether the package in dir simulates a part of a node. Only programs,
// tests, and packages with an edge to the fake may import the fake.
func isFake(dir string) bool { return dir == "fakecri" || dir == "agent/host/fakehost" }

// testEdges returns the additional packages that only tests may import, to test them
// together.
func testEdges() map[string][]string {
	return map[string][]string{
		"agent/cri": {
			"agent/stats", "containergc", "containergc/logrotate", "imagegc", "lifecycle", "lifecycle/images", "lifecycle/podrunner", "pleg",
		},
		"agent/kubeletapi":            {"status"},
		"agent/kubeletapi/podlogs":    {"containergc/logrotate"},
		"agent/kubeletapi/api/stream": {"agent", "agent/kubeletapi", "podcache"},
		"pleg/wirelist":               {"pleg", "podcache"},
		"status":                      {"agent/state"},
		"imagegc":                     {"agent/state"},
		"lifecycle/images":            {"agent/state"},
		"lifecycle/podrunner":         {"agent/state", "lifecycle/cgroups", "lifecycle/volumes"},
	}
}

// mayImport reports whether a file in dir may import the package in target.
func mayImport(dir, target string, test bool) bool {
	allowed := edges()[dir]
	switch {
	case dir == target, within(dir, "test"), within(dir, "examples"):
		return true
	case target == "internal/housetest":
		return false
	case within(target, "internal"):
		return true
	case test && isFake(target), test && slices.Contains(testEdges()[dir], target):
		return true
	default:
		return slices.Contains(allowed, target)
	}
}

// checkEdges finds imports between our packages that the table does not allow, and packages
// that are not in the table. A nested module may import every package that users can
// import. Its programs and tests may also import the fakes.
func checkEdges(m *module) (found []finding) {
	table, reported := edges(), map[string]bool{}
	for _, s := range m.sources {
		dir := s.dir()
		if s.nested {
			found = append(found, m.nestedImports(s)...)
			continue
		}
		if _, ok := table[dir]; !ok && !reported[dir] && !within(dir, "test") && !s.isExample() {
			reported[dir] = true
			found = append(found, m.findingAt(s.file.Package,
				"package %s is not in the table in edges_test.go: add it with its edges", dir))
		}
		for _, spec := range s.file.Imports {
			target, ok := ours(importPath(spec.Path.Value))
			if ok && !mayImport(dir, target, s.isTest()) {
				found = append(found, m.findingAt(spec.Pos(),
					"%s must not import %s: declare an interface here and join the two in examples", dir, target))
			}
		}
	}
	return found
}

// nestedImports finds imports that a file of a nested module must not have: internal
// packages of the root module, which the go command allows because the paths have the same
// prefix, and, in code that users link, fakes.
func (m *module) nestedImports(s source) (found []finding) {
	program := s.isTest() || s.isExample()
	for _, spec := range s.file.Imports {
		target, ok := ours(importPath(spec.Path.Value))
		switch {
		case !ok:
		case isInternal(target):
			found = append(found, m.findingAt(spec.Pos(), "a nested module must not import %s: use what users can import", target))
		case isFake(target) && !program:
			found = append(found, m.findingAt(spec.Pos(), "only programs and tests import %s", target))
		}
	}
	return found
}

// A denial forbids a dependency and all packages below it.
type denial struct{ prefix, instead string }

// deniedAlways returns the packages that no package of this module may import, including
// tests.
func deniedAlways() []denial {
	return []denial{
		{"k8s.io/client-go", "declare the narrow interface that you call"},
		{"k8s.io/component-base", "no feature gates, no metrics globals"},
		{"k8s.io/klog", "log through Config.Logger"},
		{"k8s.io/kubernetes", "it is not a library"},
		{"github.com/google/cadvisor", "statistics are injected"},
	}
}

// deniedInParts returns the packages that only agent/metrics, the examples and the tests of
// programs in test/ may import.
func deniedInParts() []denial {
	return []denial{{"github.com/prometheus", "export through Observer"}}
}

// deniedInCode returns the packages that only tests may import.
func deniedInCode() []denial {
	return []denial{
		{"testing", "tests only"},
		{"github.com/stretchr/testify", "tests only"},
		{"github.com/cockroachdb/datadriven", "tests only"},
		{"go.uber.org/mock", "tests only"},
		{"go.uber.org/goleak", "tests only"},
		{"k8s.io/utils/clock/testing", "tests only"},
		{"k8s.io/cri-api/pkg/apis/testing", "tests only"},
	}
}

// checkDenied finds imports that files of the root module must not have.
func checkDenied(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.nested {
			continue
		}
		denied := deniedAlways()
		if !s.isTest() && !isSuite(s.dir()) {
			denied = append(denied, deniedInCode()...)
		}
		if !s.isExample() && !within(s.dir(), "test") && s.dir() != "agent/metrics" {
			denied = append(denied, deniedInParts()...)
		}
		for _, spec := range s.file.Imports {
			for _, d := range denied {
				if within(importPath(spec.Path.Value), d.prefix) {
					found = append(found, m.findingAt(spec.Pos(), "import of %s: %s", d.prefix, d.instead))
				}
			}
		}
	}
	return found
}

// unlinked returns the dependencies that users of a package must not link, directly or
// indirectly.
func unlinked() map[string][]denial {
	noCRI := []denial{{"k8s.io/cri-api", "take plain types instead"}}
	return map[string][]denial{
		"eviction":             noCRI,
		"lifecycle":            noCRI,
		"lifecycle/podspec":    noCRI,
		"podmanager":           noCRI,
		"podmanager/podsource": noCRI,
		"prober":               noCRI,
		"agent": {
			{"github.com/prometheus", "it belongs to agent/metrics"},
			{"github.com/fsnotify/fsnotify", "it belongs to a source of pods"},
			{"github.com/gorilla/websocket", "it belongs to agent/kubeletapi"},
			{"github.com/moby/spdystream", "it belongs to agent/kubeletapi/api/stream"},
			{"golang.org/x/net/websocket", "it belongs to agent/kubeletapi"},
		},
	}
}

// checkLinked finds packages that link dependencies of [unlinked].
func checkLinked(m *module) (found []finding) {
	for _, p := range m.listed {
		dir, ok := ours(p.ImportPath)
		if !ok {
			continue
		}
		for _, dep := range p.Deps {
			for _, d := range unlinked()[dir] {
				if within(dep, d.prefix) {
					found = append(found, finding{dir, 1, "links " + dep + ": " + d.instead})
				}
			}
		}
	}
	return found
}

// importPath strips the quotes of an import.
func importPath(quoted string) string {
	p, err := strconv.Unquote(quoted)
	if err != nil {
		return quoted // the parser has already refused such a file
	}
	return p
}
