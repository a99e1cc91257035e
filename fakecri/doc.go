// Package fakecri simulates a CRI node in memory: pod sandboxes, containers and images that
// behave as in containerd, without running any process.
//
// # What it does
//
// A [Node] implements the RuntimeService and ImageManagerService interfaces of
// k8s.io/cri-api. [Node.Serve] serves the same node over gRPC, so a test can run the agent
// in the test process or as a separate program.
//
// A [Program] defines what a container does: run for ever, exit after some time, ignore
// SIGTERM, become healthy, serve HTTP, gRPC health or TCP, use CPU, memory and disk, or
// write logs. [Config].Programs has programs for images, or for images and commands, and
// [Config].ProgramFor can return the program of a container. The node computes stats and
// metrics from the programs, and kills a program that exceeds the memory limit of its
// container. Images have layers, which several images can share, on a disk of limited size
// ([Node.FillDisk]). A [Pull] can take time, require credentials or fail.
//
// Methods such as [Node.Kill] and [Node.Reboot] make changes that happen without a CRI
// call. [Node.Fail] makes calls fail, take time, hang or return wrong responses,
// [Node.FailEvents] disturbs the event stream, [Node.StepClock] steps the wall clock, and
// [Node.Calls] returns the calls of an agent. Package conformance checks the node and real
// runtimes with the same tests.
//
// # What you supply
//
// Nothing is required: the zero [Config] is an empty node. Usually you set images and
// programs; [DemoImages] and [DemoPrograms] return an example of each kind. For a
// deterministic test, also set a fake clock, or run in a bubble of testing/synctest.
//
// # What it guarantees
//
//  1. States are those of containerd 2.4. A container has the state CREATED, RUNNING,
//     EXITED or UNKNOWN. A sandbox is ready or not ready. The name and attempt of an object
//     are reserved from its creation to its removal; a creation with a reserved name and
//     attempt returns FailedPrecondition.
//  2. If a container or sandbox does not exist, its stop and its removal succeed, and its
//     status returns NotFound. The removal of a sandbox removes its containers, running or
//     not.
//  3. StopContainer sends SIGTERM once, waits for the grace period and then kills the
//     container. The exit code after SIGTERM is 143, unless the program defines another
//     exit code. After a kill it is 137. A stop of a sandbox kills its containers with exit
//     code 137. Reasons are Completed, Error, OOMKilled, StartError and Unknown. Containers
//     that were running at a reboot, or when [Node.KillSandbox] killed their sandbox, have
//     exit code 255.
//  4. Events are sent for sandboxes as well as containers, and contain the status of the
//     whole pod. While there is no reader, the node keeps events for five minutes for the
//     next reader.
//  5. The same calls at the same times on the same clock return the same responses, byte
//     for byte. Ids are computed from a counter and Config.Seed, lists are in the order of
//     creation, and timestamps increase even if the clock stands still.
//  6. The node copies requests and responses. A failed call changes nothing, with two
//     exceptions: StartContainer leaves an exited container, and a StopContainer whose
//     context has ended may have sent SIGTERM. The node treats a nil message or field in a
//     request as empty.
//
// # Goroutines and locking
//
// A node has no background goroutines unless Config.Listen is set. With Config.Listen,
// programs that listen have goroutines until they exit or [Node.Shutdown] is called.
// [Node.Serve] and the methods for streams, such as [Node.ExecStream], also start
// goroutines. The goroutines of Serve have ended when Serve returns. The node applies
// scheduled changes, such as the exit of a program, at the next call of any of its methods.
// It applies them in the order in which they were due, and with the times at which they
// were due. A call that waits, such as StopContainer, ExecSync or a read of events, sets a
// timer on the clock. All methods may be called concurrently. One lock guards the node. It
// is not held while a call waits or an event is delivered.
//
// # Differences from containerd
//
//   - In fakecri, lists are in the order of creation, ids are computed from a counter, and
//     requests must contain the full id.
//   - A slow event reader delays no other reader: the node keeps the reader's unread events
//     without a limit. When the last reader ends, the node keeps these events for the next
//     reader.
//   - CheckpointContainer returns Unimplemented, and so do Exec, Attach and PortForward
//     without a [Streamer]. Verbose statuses contain no additional information.
//   - No process runs. The node stores mounts, commands, environment, resources and security
//     settings, but only two of these settings change what a container does: the memory limit,
//     and a command for which a program is configured. Each write to a log opens the file again.
//   - Stats are computed from the programs. CPU limits have no effect. Usage, working set
//     and RSS are the same number. Network traffic is zero, pressure is not reported, and
//     only a few metrics exist.
//   - A full disk only makes pulls fail. The node does not count data that containers write
//     beyond the capacity of the disk.
//   - Pods have IPv4 addresses. Without Config.Listen, no program listens on them. With
//     [Network.Listen], programs are reachable in memory, only through [Network.Dial].
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
