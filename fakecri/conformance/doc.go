// Package conformance is a test suite for any CRI runtime. It checks that the runtime
// behaves as the managers of this module assume.
//
// # What it does
//
// [Test] creates pods on the runtime behind a gRPC connection, checks how they behave, and
// removes them. Each check is a subtest. The message of a failed check names the manager
// that would break and how it would break, and then the observation:
//
//	--- FAIL: TestRuntime/stop/shorter-grace-wins (9.02s)
//	    eviction: cannot shorten the grace period of a terminating pod
//	        seen: after 8.8s
//
// The suite is the contract between fakecri and real runtimes: both pass the same checks,
// so tests with fakecri are valid for real runtimes. If fakecri behaves differently from a
// real runtime, fakecri is wrong.
//
// # What you supply
//
// You supply a connection and [Options]. The options contain images for the workloads of
// the checks, an image that the test may pull and remove, and the name of an image that
// does not exist. For the workloads one image with a shell is enough, see [Shell]. The test
// must be able to read the folder with the logs, so it runs on the runtime's machine,
// usually as root.
//
// If a runtime is known to fail a check, set Options.Skip for that check, with the reason.
// The check is then reported as skipped, with that reason. A check is also skipped if the
// runtime returns Unimplemented for a call that the managers do not require. These are the
// calls for events, statistics, resizes and the reopening of logs.
//
// In a clone of this module, make conformance-cri SOCKET=/run/crio/crio.sock runs the suite
// on any runtime. Set IMAGE, PULL_IMAGE and MISSING_IMAGE to replace the images of Docker
// Hub, and CGROUP_PARENT to set the parent cgroup of the pods.
//
// # What it guarantees
//
//  1. A check changes and counts only its own objects on the runtime: all pods and
//     containers of a check have its label, and its logs are below its folder. The
//     exception is Options.PullImage, which a check removes.
//  2. A check removes everything that it created, even if the check fails. Objects remain
//     only if the runtime fails to remove one of them.
//  3. The suite checks only behaviour on which a manager relies. It checks an error code,
//     such as NotFound, if a manager depends on that code. It never checks error texts, the
//     order of lists or image ids. Pods and containers have the kubelet's labels, which
//     CRI-O requires.
//  4. Every check can fail: for each check, the tests of this package contain a runtime
//     with a defect that the check finds.
//
// # Runtimes
//
// containerd 2.4 and 1.7 pass every check. The checks accept the following differences
// between runtimes, which affect no manager:
//
//   - containerd 1.7 shares one channel of events among all streams, and a stream whose
//     client has disconnected consumes one event before it ends. The suite must be the only
//     client that reads events.
//   - On containerd 1.7 a stop of a pod fails with "ttrpc: closed" if one of its containers
//     exits by itself at that moment. The managers retry. The checks wait until the
//     container has exited before they stop the pod.
//   - containerd 1.6 has no events, so the checks of events are skipped. It returns
//     NotFound when a removed pod is stopped again.
//   - CRI-O adds labels to sandboxes. The created_at in its lists and statuses can differ
//     by about 0.1 s.
//   - CRI-O returns the id of the first pod or container for a second RunPodSandbox or
//     CreateContainer with the same name.
//   - CRI-O refuses to create a container whose command is missing. Other runtimes refuse
//     to start such a container.
//   - CRI-O runs commands in containers that were created but not started. It stops such a
//     container only at the end of the grace period.
//   - CRI-O returns exit code -1 for an ExecSync that exceeds its timeout, not
//     DeadlineExceeded.
//   - CRI-O sends no event when a sandbox is removed.
//
// # Goroutines and locking
//
// Checks of events run first, one at a time. All other checks run in parallel, limited by
// go test's -parallel. Checks share only the connection. Checks of events read a stream in
// a goroutine, which ends before the check ends.
//
// All waits are in real time, because runtimes have no fake clock. The checks wait by
// polling, for at most Options.ChangeTimeout.
//
// # Differences from critest
//
// The suite of the cri-tools project checks whether a runtime implements the CRI. This
// suite checks whether an agent works with the runtime: the exit codes, reasons and
// timestamps that the runtime returns, and the results of calls that are repeated, too late
// or concurrent. The two suites overlap little.
//
// # Testing your code with it
//
// See the example: a test of a runtime needs ten lines. If your own fake passes, you can
// use it instead of fakecri.
package conformance
