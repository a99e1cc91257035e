// Package conformance checks that a CRI runtime behaves as the managers of this
// module assume: a test suite to be run on any runtime.
//
// # What it does
//
// [Test] makes pods on the runtime behind a gRPC connection, looks at what
// becomes of them, and takes them away again. Each check is a subtest. One that
// fails says first which manager breaks and how, and then what was seen:
//
//	--- FAIL: TestRuntime/stop/shorter-grace-wins (9.02s)
//	    eviction: cannot shorten the grace of a pod that terminates already
//	        seen: after 8.8s
//
// It is the contract between fakecri and real runtimes: both pass the same
// checks, so what is tested with the fake is what will be met. Where the two
// differ, the fake is wrong.
//
// # What you supply
//
// A connection, and [Options]: images that do what the checks need, which one
// image with a shell does, see [Shell]; one image that may be pulled and removed;
// and one that does not exist. The test must see the folder that logs are
// written to, so it runs on the runtime's machine, usually as root.
//
// What a runtime is known not to do is named in Options.Skip, with the reason.
// The check is then reported as skipped, with that reason. So is the check of a call
// that the runtime answers with Unimplemented, if the managers can do without it:
// events, statistics, resizes and reopening logs.
//
// In a clone of this module, make conformance-cri SOCKET=/run/crio/crio.sock runs the
// suite on any runtime. IMAGE, PULL_IMAGE and MISSING_IMAGE name other images than
// those of Docker Hub, CGROUP_PARENT the cgroup of the pods.
//
// # What it guarantees
//
//  1. Nothing of others on the runtime is touched or counted: pods, containers
//     and logs of a check have its label or are below its folder. The exception
//     is Options.PullImage, which is removed.
//  2. What a check made is gone when it is over, however it ended, as far as the
//     runtime removes it.
//  3. Only what a manager relies on is checked. Error codes are where one decides
//     by them, such as NotFound; texts, orders of lists and ids of images never
//     are.
//     Pods and containers have the kubelet's labels, which CRI-O requires.
//  4. No check can fail to fail: for each there is a defect that it finds, and
//     its own tests have a runtime with that defect.
//
// # Runtimes
//
// containerd 2.4 and 1.7 pass every check. What other runtimes do differently, and no
// manager minds, passes too:
//
//   - containerd 1.7 shares one channel of events among all streams, and a stream whose
//     client has gone takes one event before it ends. The suite must be the only client
//     that reads events.
//   - On containerd 1.7 a stop of a pod fails with "ttrpc: closed" if one of its containers
//     ends by itself at that moment. The managers try again. The checks wait for the
//     container's end before they stop the pod.
//   - containerd 1.6 has no events: those checks are skipped. It answers NotFound when a pod
//     that was removed is stopped again.
//   - CRI-O labels sandboxes. Its list and its status can differ in created_at by some
//     0.1 s.
//   - CRI-O answers a second RunPodSandbox or CreateContainer of the same name with the
//     id of the first.
//   - CRI-O refuses to create a container whose command is missing. Others refuse to
//     start it.
//   - CRI-O runs commands in containers that were created and not started, and stops
//     such a container only at the end of the grace period.
//   - CRI-O answers an ExecSync that took too long with exit code -1, not with
//     DeadlineExceeded.
//   - CRI-O sends no event when a sandbox is removed.
//
// # Goroutines and locking
//
// Checks run in parallel, within go test's -parallel, and those about events before
// the others, one at a time. They have no state in common but the connection. Those
// about events read a stream in a goroutine, which ends before the check does.
//
// All times are real, because a runtime has no other. Waits are by asking again,
// and end after Options.Settle.
//
// # Differences from critest
//
// The suite of the cri-tools project asks whether a runtime has what the CRI
// describes. This one asks whether an agent works on it: how exit codes, reasons
// and timestamps are told, what happens when a call is made again, too late, or
// while another one waits. They overlap little.
//
// # Testing your code with it
//
// See the example: a test of a runtime is ten lines. A fake of your own that
// passes is fit to replace fakecri.
package conformance
