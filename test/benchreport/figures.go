package main

import (
	"slices"
	"strings"
)

// A figure is a benchmark's value in one unit, with its bound.
type figure struct {
	what       string // as shown on the page
	pkg, bench string // bench as go test prints it, without Benchmark
	unit       string
	most       float64
	kubelet    string // the kubelet's value, empty if the kubelet has no such value
}

func (f figure) key() string { return key(f.pkg, f.bench, f.unit) }

// section returns the first folder of the package. Each section is a table of the page.
func (f figure) section() string {
	top, _, _ := strings.Cut(f.pkg, "/")
	return top
}

// sections returns the sections of the page, in order.
func sections() (all []string) {
	for _, f := range figures() {
		if !slices.Contains(all, f.section()) {
			all = append(all, f.section())
		}
	}
	return all
}

const (
	ns = "ns/op"
	ms = 1e6 // in ns
)

// figures returns the figures that benchmarks measure: the costs that a user of a node with
// 500 pods can notice in the kubelet or here.
func figures() []figure {
	return []figure{
		{"an idle relist of 500 pods over a unix socket, CPU of the client", "pleg/wirelist", "IdleRelistOverASocket/pods=500", "cpu-ms/op", 1.5, "33.5 ms, runtime included"},
		{"load a folder of 1,000 manifests", "podmanager/podsource", "LoadFirst/manifests=1000", ns, 1000 * ms, ""},
		{"notice an edit of one of 1,000 manifests", "podmanager/podsource", "EditToSet/manifests=1000", ns, 100 * ms, "1 s and more"},
		{"memory of an idle pod's worker", "lifecycle/podworker", "Idle", "B/pod", 400, "5.4 KB"},
		{"`KillPod` of a pod that has finished", "lifecycle/podworker", "KillOfAFinishedPod", ns, 1 * ms, "10 s"},
	}
}

// A nodeFigure is a figure that an end-to-end test measures on a node and prints. The
// field most is the bound; it is negative if the figure has no bound.
type nodeFigure struct {
	what, name, unit string
	most             float64
	kubelet          string
}

// nodeFigures returns the figures of end-to-end tests.
func nodeFigures() []nodeFigure {
	return []nodeFigure{
		{"100 idle pods: memory", "idle-rss", "MiB", 40, "109–114 MiB"},
		{"100 idle pods: CPU a minute", "idle-cpu", "s", 0.3, "3.2 s"},
		{"100 idle pods: CRI calls a minute", "idle-calls", "calls", 60, "884–918"},
		{"100 idle pods: goroutines", "idle-goroutines", "goroutines", 60, "592"},
		{"size of the stripped program", "binary", "MB", 35, "84 MB"},
		{"start of the agent until ready", "ready", "s", 0.15, "0.47 s"},
		{"one manifest until its pod is running", "one-pod", "s", 0.2, "0.20 s"},
		{"50 manifests until all pods are running, relative to a plain CRI client that starts 4 at once", "fifty-pods", "x", 1.1, "1.5 x"},
		{"50 manifests until all pods are running, relative to a plain CRI client that starts all at once", "fifty-pods-all-at-once", "x", 1, ""},
		{"100 manifests deleted until all pods are removed", "hundred-gone", "s", 12, "73 s"},
		{"restart with 100 running pods until all are reported Running", "adopt-hundred", "s", 1, "14.1 s"},
		{"the agent notices the effect of its own action, median", "own-action", "ms", 20, "up to 1 s"},
		{"the agent notices an exit of a container, median", "foreign-exit", "ms", 50, "up to 1 s"},
		{"200 pods with 3 probes each, every second: CPU in percent of a core", "probe-load", "%", -1, ""},
		{"threshold crossed until the decision to evict, slowest of 20", "evict-notice", "ms", 250, "10 s and more"},
	}
}

// A heldFigure is a bound that an ordinary test checks.
type heldFigure struct{ what, pkg, test, most, kubelet string }

// heldFigures returns the bounds that ordinary tests check.
func heldFigures() []heldFigure {
	return []heldFigure{
		{"first relist of 500 pods, 5 ms for each inspection", "pleg", "TestRelist_FirstPassInspectsInParallel", "0.4 s", "2.8 s"},
		{"events lost in the first relist of 500 pods", "pleg", "TestDelivery_LosesNoneOfManyEvents", "0", "1,000"},
		{"delay of other pods by a hanging pod", "pleg", "TestRun_HungPodsDoNotDelayOthers", "0", "2 s"},
		{"gRPC probe of a port that refuses connections", "prober/grpcprobe", "TestCheck_RefusedConnectionFailsAtOnce", "20 ms", "3 s"},
		{"stop of 100 pods whose processes exit at once, relative to the runtime's own time", "lifecycle", "TestTerminate_HundredPodsConcurrently", "1.2 x", ""},
		{"publish 100 statuses at 5 ms for each call: time and number of calls", "status", "TestPublisher_HundredPodsNeedOneCallEach", "100 ms, 100", "1.87 s, 200"},
		{"1,000 pods that change every second: a change of Ready is published within, p99", "status", "TestPublisher_ThousandPodsChangeEverySecond", "50 ms and the call", ""},
	}
}
