// Package e2e tests the agent on a real machine: with a real containerd, runc and a CNI
// bridge, real processes and signals, and the agent as a separate process, as users run it.
//
// # Running it
//
//	make e2e
//	make e2e-runtimes                                                     # on containerd 2.4, 1.7 and 1.6
//	KUBEPARTS_E2E_CONTAINERD=1.7 go test -tags e2e -v -count=1 -run TestCrashLoop ./test/e2e
//	go test -tags e2e -v -count=1 -parallel 5 ./test/e2e                  # the same as make e2e
//	go test -tags e2e -v -count=1 -run TestCrashLoop ./test/e2e           # one test
//	KUBEPARTS_AGENT=/path/to/agent go test -tags e2e -v -count=1 ./test/e2e
//	KUBEPARTS_E2E_PROBED_PODS=200 KUBEPARTS_E2E_PROBED_TIME=2m go test -tags e2e -v -count=1 -run TestManyProbes ./test/e2e
//
// KUBEPARTS_E2E_PART divides the sizes of tests that measure, and KUBEPARTS_E2E_DAY is the
// duration of the test with faults; .ci/run uses both to save time.
//
// The tests need Linux, root, and Debian with apt and Go. The test bed (test/testbed)
// installs everything else: the first run builds containerd, which takes some minutes, and
// caches it in ~/.cache/kpbed. KUBEPARTS_AGENT is the path of an agent binary; the default is
// a new build of examples/minimal-agent. The tests print their measurements, therefore the
// commands have -v.
//
// KUBEPARTS_E2E_CONTAINERD is the version of containerd, by default 2.4. A test that needs a
// feature which some versions lack calls [needs] first. Such a test is skipped on these
// versions, and fails on 2.4. On 1.7 tests run one at a time, because all clients share its
// events.
//
// # How it is put together
//
// All tests share one bed, except for tests that need a separate disk: these start an
// additional bed ([newSmallBed]). The test binary runs twice. The first process starts the
// bed, runs the second process, which runs the tests, and stops the bed. Two processes are
// necessary because a panic, a test timeout or an interrupt ends the process with the tests
// without running its deferred functions. If the first process is killed, the next run
// removes what that process has left.
//
// A test creates a node: a directory of manifests, a root directory and an agent name. Agents
// only change objects with their name, so that tests run in parallel on the same socket.
// Tests that measure, and tests that stop the runtime of all tests, are not parallel. At the
// end of a test its agent is stopped and its pods are removed over CRI. The bed also has
// foreign pods, which belong to no agent. They must be unchanged after each test.
//
// Tests compare three independent sources: the agent (/pods, /healthz, its output), the
// runtime (over CRI), and the kernel (processes, mounts, network namespaces). They poll a
// condition until a deadline. A failed wait prints the last observation.
package e2e
