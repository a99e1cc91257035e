// Package e2e proves the agent on a real machine: a real containerd with runc and
// a CNI bridge, real processes, real signals, and the agent as its users run it,
// as a process of its own.
//
// # Running it
//
//	make e2e
//	make e2e-runtimes                                                     # on containerd 2.4, 1.7 and 1.6
//	KUBEPARTS_E2E_CONTAINERD=1.7 go test -tags e2e -v -count=1 -run TestCrashLoop ./test/e2e
//	go test -tags e2e -v -count=1 -parallel 5 ./test/e2e                  # the same
//	go test -tags e2e -v -count=1 -run TestCrashLoop ./test/e2e           # one test
//	KUBEPARTS_AGENT=/path/to/agent go test -tags e2e -v -count=1 ./test/e2e
//	KUBEPARTS_E2E_PROBED_PODS=200 KUBEPARTS_E2E_PROBED_TIME=2m go test -tags e2e -v -count=1 -run TestManyProbes ./test/e2e
//
// It needs Linux, root, and Debian with apt and Go. What else it needs the bed
// gets for itself (test/testbed): the first run builds containerd, which takes
// some minutes, and keeps it in ~/.cache/kpbed. KUBEPARTS_AGENT names an agent
// binary; without it examples/minimal-agent is built. The tests print what they
// measure, hence -v.
//
// KUBEPARTS_E2E_CONTAINERD is the version of containerd, 2.4 if it is not set. A test
// that needs a feature which some versions lack calls [needs] first. It is skipped there,
// and fails on 2.4. On 1.7 tests run one at a time, because all clients share its events.
//
// # How it is put together
//
// One bed serves all tests, but for those that need a disk of their own: these bring up
// one more ([newSmallBed]). The test binary runs twice: the first process brings the bed
// up, runs the second with the tests in it, and takes the bed down, because a panic, a
// test timeout or an interrupt ends the process with the tests without running anything
// deferred in it. What even a killed first process leaves behind, the next run takes away
// before it starts.
//
// A test makes a node: a folder of manifests, a root folder and an agent name of
// its own. Agents touch only what carries their name, so that tests run in
// parallel on the one socket. Those that measure, and those that take the runtime from
// under all others, are not parallel. When a test is over its agent is stopped, its pods
// are removed over CRI, and the foreign pods, which stand on the same socket all
// the time and belong to no agent, must be what they were in the beginning.
//
// Tests look at three things that know nothing of each other: what the agent says
// (/pods, /healthz, its output), what the runtime says over CRI, and what the
// kernel has (processes, mounts, network namespaces). They wait by asking again
// until a deadline, and a failed wait tells what was last seen.
package e2e
