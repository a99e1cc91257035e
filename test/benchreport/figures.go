package main

import (
	"slices"
	"strings"
)

// A figure is a benchmark's value in one unit, and what it must not exceed.
type figure struct {
	what       string // for readers
	pkg, bench string // bench as go test prints it, without Benchmark
	unit       string
	most       float64
	kubelet    string // what the kubelet takes for the same, empty if it has no such thing
}

func (f figure) key() string { return key(f.pkg, f.bench, f.unit) }

// section is the package's first folder: figures of one are one table.
func (f figure) section() string {
	top, _, _ := strings.Cut(f.pkg, "/")
	return top
}

// sections are those of the figures, each once, in order.
func sections() (all []string) {
	for _, f := range figures() {
		if !slices.Contains(all, f.section()) {
			all = append(all, f.section())
		}
	}
	return all
}

const (
	ns     = "ns/op"
	allocs = "allocs/op"
	µs     = 1e3 // in ns
	ms     = 1e6
)

// figures are all that a benchmark can measure.
func figures() []figure {
	return []figure{
		{"compare two listings of 500 pods", "pleg", "Diff/pods=500", ns, 35 * µs, "352 µs"},
		{"an idle relist of 500 pods over a unix socket, CPU of the client", "pleg/wirelist", "IdleRelistOverASocket/pods=500", "cpu-ms/op", 1.5, "33.5 ms, runtime included"},
		{"the same, 5,000 pods", "pleg/wirelist", "IdleRelistOverASocket/pods=5000", "cpu-ms/op", 15, "320 ms, runtime included"},
		{"read both lists of 500 pods", "pleg/wirelist", "Read/pods=500/order=kept", ns, 1.5 * ms, "12.3 ms"},
		{"`GetNewerThan` of what is there", "podcache", "GetNewerThanReady", ns, 40, "336 ns"},
		{"its allocations", "podcache", "GetNewerThanReady", allocs, 0, "2"},
		{"pod by UID, of 500", "podmanager", "GetPodByUID/pods=500", ns, 30, "22 ns"},
		{"pod by name, of 500", "podmanager", "GetPodByName/pods=500", ns, 30, "44 ns"},
		{"all 500 pods", "podmanager", "GetPods/pods=500", ns, 1 * µs, "17 µs"},
		{"their allocations", "podmanager", "GetPods/pods=500", allocs, 0, "1"},
		{"one pod of 500 changes", "podmanager", "UpdatePod/pods=500", ns, 1 * µs, "110 ns"},
		{"a folder of 1,000 manifests is loaded", "podmanager/podsource", "LoadFirst/manifests=1000", ns, 1000 * ms, ""},
		{"an edit among 1,000 is seen", "podmanager/podsource", "EditToSet/manifests=1000", ns, 100 * ms, "1 s and more"},
		{"memory of an idle pod's worker", "lifecycle/podworker", "Idle", "B/pod", 400, "5.4 KB"},
		{"its goroutines", "lifecycle/podworker", "Idle", "goroutines/pod", 0.01, "1"},
		{"`SyncKnownPods`, 500 pods, nothing new", "lifecycle/podworker", "SyncKnownPods/pods=500", ns, 20 * µs, "502 µs"},
		{"its allocations", "lifecycle/podworker", "SyncKnownPods/pods=500", allocs, 0, "1,532"},
		{"`KillPod` of a pod that has finished", "lifecycle/podworker", "KillOfAFinishedPod", ns, 1 * ms, "10 s"},
		{"plan of a pod of ten containers that is well", "lifecycle/podrunner", "Plan/containers=10", ns, 100 * µs, ""},
		{"probe of the node", "agent/stats", "Node/machine/MemAvailable", ns, 55 * µs, ""},
	}
}

// A nodeFigure is one that needs a node: an end-to-end test prints it. Its most is
// negative where there is no bound.
type nodeFigure struct {
	what, name, unit string
	most             float64
	kubelet          string
}

// nodeFigures are all of those.
func nodeFigures() []nodeFigure {
	return []nodeFigure{
		{"100 idle pods: memory", "idle-rss", "MiB", 40, "109–114 MiB"},
		{"100 idle pods: CPU a minute", "idle-cpu", "s", 0.3, "3.2 s"},
		{"100 idle pods: CRI calls a minute", "idle-calls", "calls", 60, "884–918"},
		{"100 idle pods: goroutines", "idle-goroutines", "goroutines", 60, "592"},
		{"the program, stripped", "binary", "MB", 35, "84 MB"},
		{"start to ready", "ready", "s", 0.15, "0.47 s"},
		{"one manifest to running", "one-pod", "s", 0.2, "0.20 s"},
		{"50 manifests to the last one running, by a bare client's time that starts 4 at once", "fifty-pods", "x", 1.1, "1.5 x"},
		{"the same, by one's that starts all at once", "fifty-pods-all-at-once", "x", 1, ""},
		{"100 manifests removed to all gone", "hundred-gone", "s", 12, "73 s"},
		{"restart over 100 running pods to all reported Running", "adopt-hundred", "s", 1, "14.1 s"},
		{"an own action is seen, median", "own-action", "ms", 20, "up to 1 s"},
		{"a foreign exit is seen, median", "foreign-exit", "ms", 50, "up to 1 s"},
		{"200 pods × 3 probes at 1 s: part of a core", "probe-load", "%", -1, ""},
		{"threshold crossed to the decision to evict, the slowest of 20", "evict-notice", "ms", 250, "10 s and more"},
	}
}

// A heldFigure is one that an ordinary test holds, so that it never is over.
type heldFigure struct{ what, pkg, test, most, kubelet string }

// heldFigures are all of those.
func heldFigures() []heldFigure {
	return []heldFigure{
		{"first look at 500 pods, 5 ms an inspection", "pleg", "TestTheFirstRelistInspectsInParallel", "0.4 s", "2.8 s"},
		{"events lost in it", "pleg", "TestNoEventIsLostHoweverMany", "0", "1,000"},
		{"a pod that hangs delays others by", "pleg", "TestAHungPodDelaysNoOther", "0", "2 s"},
		{"gRPC probe of a port that refuses", "prober/grpcprobe", "TestARefusedPortIsAFailureAtOnce", "20 ms", "3 s"},
		{"end of 100 pods whose processes end at once, by the runtime's own time", "lifecycle", "TestAHundredPodsEndAsFastAsTheRuntimeStopsThem", "1.2 x", ""},
		{"100 statuses at 5 ms a call: time and calls", "status", "TestAHundredPods", "100 ms, 100", "1.87 s, 200"},
		{"1,000 pods that change each second: a Ready that flips is out within, p99", "status", "TestAThousandPodsThatNeverRest", "50 ms and the call", ""},
	}
}
