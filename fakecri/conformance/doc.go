// Package conformance checks that a CRI runtime behaves as the managers of this
// module assume: a test suite to be run on any runtime.
//
// # What it does
//
// [Test] creates pods on the runtime behind a gRPC connection, checks how they behave, and
// removes them. Each check is a subtest. The message of a failed check has first the
// manager that breaks and how it breaks, and then the observation:
//
//	--- FAIL: TestRuntime/stop/shorter-grace-wins (9.02s)
//	    eviction: cannot shorten the grace period of a terminating pod
//	        seen: after 8.8s
//
// It is the contract between fakecri and real runtimes: both pass the same checks, so tests
// with the fake are valid for real runtimes. Where the two differ, the fake is wrong.
//
// # What you supply
//
// A connection, and [Options]: images for the workloads of the checks, for which one image
// with a shell is enough, see [Shell]; one image that may be pulled and removed; and the
// name of an image that does not exist. The test must be able to read the folder with the
// logs, so it runs on the runtime's machine, usually as root.
//
// If a runtime is known to fail a check, set Options.Skip for that check, with the reason.
// The check is then reported as skipped, with that reason. A check is also skipped if the
// runtime returns Unimplemented and the managers do not require the call: events,
// statistics, resizes and reopening logs.
//
// In a clone of this module, make conformance-cri SOCKET=/run/crio/crio.sock runs the suite
// on any runtime. Set IMAGE, PULL_IMAGE and MISSING_IMAGE to use other images than those of
// Docker Hub, and CGROUP_PARENT for the cgroup of the pods.
//
// # What it guarantees
//
//  1. Other objects on the runtime are neither changed nor counted: pods and containers of
//     a check have its label, and its logs are below its folder. The exception is
//     Options.PullImage, which is removed.
//  2. A check removes everything that it created, even if it fails, as far as the runtime
//     removes it.
//  3. Only behaviour on which a manager relies is checked. Error codes are checked if a
//     manager depends on them, such as NotFound; error texts, the order of lists and image
//     ids never are. Pods and containers have the kubelet's labels, which CRI-O requires.
//  4. Every check can fail: for each check, the tests of this package have a runtime with a
//     defect that the check finds.
//
// # Runtimes
//
// containerd 2.4 and 1.7 pass every check. The checks also accept the following differences
// of other runtimes, which affect no manager:
//
//   - containerd 1.7 shares one channel of events among all streams, and a stream whose
//     client has disconnected consumes one event before it ends. The suite must be the only
//     client that reads events.
//   - On containerd 1.7 a stop of a pod fails with "ttrpc: closed" if one of its containers
//     exits by itself at that moment. The managers retry. The checks wait until the
//     container has exited before they stop the pod.
//   - containerd 1.6 has no events: those checks are skipped. It returns NotFound when a
//     removed pod is stopped again.
//   - CRI-O labels sandboxes. Its list and its status can differ in created_at by some
//     0.1 s.
//   - CRI-O returns the id of the first pod or container for a second RunPodSandbox or
//     CreateContainer with the same name.
//   - CRI-O refuses to create a container whose command is missing. Others refuse to
//     start it.
//   - CRI-O runs commands in containers that were created and not started, and stops
//     such a container only at the end of the grace period.
//   - CRI-O returns exit code -1 for an ExecSync that exceeds its timeout, not
//     DeadlineExceeded.
//   - CRI-O sends no event when a sandbox is removed.
//
// # Goroutines and locking
//
// Checks run in parallel, within go test's -parallel, and those about events before the
// others, one at a time. They share only the connection. Checks of events read a stream in
// a goroutine, which ends before the check does.
//
// All waits are in real time, because runtimes have no fake clock. The checks wait by
// polling, for at most Options.ChangeTimeout.
//
// # Differences from critest
//
// The suite of the cri-tools project checks whether a runtime implements the CRI. This
// suite checks whether an agent works with it: the exit codes, reasons and timestamps that
// it returns, and the results of calls that are repeated, too late or concurrent. They
// overlap little.
//
// # Testing your code with it
//
// See the example: a test of a runtime needs ten lines. If your own fake passes, you can
// use it instead of fakecri.
package conformance
