// Package fakecri simulates a CRI node in memory: pod sandboxes, containers and images that
// behave as in containerd, without running any process.
//
// # What it does
//
// A [Node] implements the RuntimeService and ImageManagerService interfaces of
// k8s.io/cri-api, and [Node.Serve] offers the same node over gRPC, so an agent can be
// tested in its own process or as a program of its own. A [Program] for each image, or each
// image and command, defines what its containers do: run for ever, exit after some time,
// ignore SIGTERM, become healthy, serve HTTP, gRPC health or TCP, use CPU, memory and disk,
// write logs. Stats and metrics are computed from the programs, and a program that exceeds
// its container's memory limit is killed. Images have layers, which they can share, on a
// disk of limited size ([Node.FillDisk]); a [Pull] takes time, requires credentials or
// fails. Hooks such as [Node.Kill] and [Node.Reboot] trigger what happens without a CRI
// call. [Node.Fail] makes calls fail, take time, hang or return wrong responses,
// [Node.FailEvents] disturbs the event stream, [Node.StepClock] steps the wall clock, and
// [Node.Calls] returns the calls of an agent. Package conformance checks the node and real
// runtimes with the same tests.
//
// # What you supply
//
// Nothing is required: the zero [Config] is an empty node. Usually you set images and
// programs; [DemoImages] and [DemoPrograms] have one of each kind. For a deterministic
// test, also set a fake clock, or run in a bubble of testing/synctest.
//
// # What it guarantees
//
//  1. States are those of containerd 2.4. Containers are created, running, exited or
//     unknown, sandboxes ready or not ready. A name with its attempt is reserved from
//     creation to removal; a second use of it returns FailedPrecondition.
//  2. Stopping and removing an unknown container or sandbox succeeds; its status is
//     NotFound. Removing a sandbox removes its containers, running or not.
//  3. StopContainer sends SIGTERM once, waits for the grace period and then kills the
//     container. The exit code is 143 or the one of the program, or 137 after a kill.
//     Stopping a sandbox kills its containers with exit code 137. Reasons are Completed,
//     Error, OOMKilled, StartError and Unknown. Containers that ran at a reboot, or when
//     their sandbox was killed, have exit code 255.
//  4. Events are sent for sandboxes as well as containers, and contain the status of the
//     whole pod. Without a reader they are kept for five minutes, and the first reader gets
//     them.
//  5. The same calls at the same times on the same clock return the same responses, byte
//     for byte: ids are computed from a counter and Config.Seed, lists are in the order of
//     creation, and timestamps increase even if the clock stands still.
//  6. Requests and responses are copied. A failed call changes nothing, except
//     StartContainer, which leaves an exited container. A nil message or field in a request
//     is treated as an empty one.
//
// # Goroutines and locking
//
// A node starts no goroutine, unless Config.Listen is set: then its listening programs have
// goroutines until they exit or [Node.Shutdown] is called. Scheduled changes, such as the
// exit of a program, are applied when a method of the node is next called, in the right
// order and with the time at which they were due. A call that waits, such as StopContainer,
// ExecSync or a read of events, sets a timer on the clock. The goroutines of Serve have
// ended when it returns. All methods may be called concurrently; one lock guards the node,
// and it is not held while a call waits or an event is delivered.
//
// # Differences from containerd
//
//   - Lists are in the order of creation, ids are computed from a counter, and requests
//     must contain the full id.
//   - A slow event reader delays no other reader; its unread events are kept without a
//     limit. Events that the last reader has not read are kept for the next reader.
//   - CheckpointContainer returns Unimplemented, and so do Exec, Attach and PortForward
//     without a [Streamer]. Verbose statuses contain no additional information.
//   - No process runs: mounts, commands, environment, resources and security settings are
//     stored and returned only. Two of them have an effect: the memory limit, and a command
//     for which a program is configured. Each write to a log opens the file again.
//   - Stats are computed from the programs: CPU limits have no effect; usage, working set
//     and RSS are the same number; network traffic is zero; pressure is not reported; and
//     only a few metrics exist.
//   - A full disk makes pulls fail and nothing else; data that containers write beyond its
//     capacity is not counted.
//   - Pods have IPv4 addresses, at which nothing listens without Config.Listen. With the
//     Listen of a [Network] they are reachable in memory, only through its Dial.
//
// Node has every method of the RuntimeService of cri-api v0.36. Version v0.37 adds
// CheckpointPod and RestorePod to that interface, with types that v0.36 does not have. With
// v0.37 a Node still implements interfaces without these two methods.
//
// # Testing your code with it
//
// See the example of [New]: an agent of a few lines keeps a pod running, its container is
// killed, and the recorded calls show what the agent did. To test behaviour over time, use
// a synctest bubble with the Go interface or with an in-memory listener; a unix socket
// stops the bubble's clock.
package fakecri
