// Package fakecri is a CRI node in memory: pod sandboxes, containers and images
// with the behaviour of containerd and without a machine under them.
//
// # What it does
//
// A [Node] implements the RuntimeService and ImageManagerService interfaces of
// k8s.io/cri-api, and [Node.Serve] offers the same node over gRPC, so an agent
// can be tested in its own process or as a program of its own. What containers
// do is said by a [Program] per image, or per image and command: run for ever,
// end after a while, ignore SIGTERM, become healthy, serve HTTP, gRPC health or
// TCP, use CPU, memory and disk, log. Stats and metrics follow the programs, and
// a program that passes its container's memory limit is killed. Images have
// layers, which they may share, on a disk that fills ([Node.FillDisk]); a [Pull]
// takes time, wants credentials or fails. Hooks such as [Node.Kill] and [Node.Reboot]
// make happen what needs no CRI call, [Node.Fail] makes calls fail, take time,
// hang or answer wrongly, [Node.FailEvents] spoils the event stream,
// [Node.StepClock] the wall clock, and [Node.Calls] tells what an agent asked
// for. Package conformance holds the node and real runtimes to the same rules.
//
// # What you supply
//
// Nothing: the zero [Config] is an empty node. Usually it has images and
// programs; [DemoImages] and [DemoPrograms] are a set of each kind. A
// deterministic test also gives it a fake clock, or runs in a bubble of
// testing/synctest.
//
// # What it guarantees
//
//  1. States are containerd 2.4's. Containers are created, running, exited or
//     unknown, sandboxes ready or not. A name with its attempt is reserved from
//     creation to removal; a second use of it is a FailedPrecondition.
//  2. Stopping and removing what is not known succeeds; asking for its status
//     is NotFound. Removing a sandbox removes its containers, running or not.
//  3. StopContainer sends SIGTERM once, waits and then kills: exit code 143 or
//     the program's own, or 137. The sandbox's way out is always 137. Reasons are
//     Completed, Error, OOMKilled, StartError and Unknown; after a reboot
//     containers have code 255, and so have those whose sandbox was killed.
//  4. Events name the sandbox as a container too and carry the whole pod. They
//     are kept for five minutes while nobody reads them; then the first reader
//     gets them all.
//  5. The same calls at the same times on the same clock make the same answers,
//     byte for byte: ids come from a counter and Config.Seed, lists are in the
//     order of making, and timestamps count up even when the clock stands still.
//  6. Messages are copied on the way in and out. A call that fails changes
//     nothing, but for StartContainer, which leaves an exited container. A nil
//     message or field in a request is an empty one.
//
// # Goroutines and locking
//
// A node has no goroutine, unless Config.Listen is set: then its listening
// programs have some, until they end or [Node.Shutdown]. What is to happen by itself, such as the end of a
// program, happens when the node is next looked at, in the right order and with
// the time at which it was due; who waits for it, in StopContainer, in ExecSync
// or for an event, sets a timer on the clock. Serve's goroutines have ended when
// it returns. All methods may be called concurrently; one lock guards the node
// and is not held while a call waits or an event is delivered.
//
// # Differences from containerd
//
//   - Lists are in the order of making, ids are counted, and ids must be given
//     in full.
//   - An event reader that is slow holds up nobody; what it has not read waits
//     for it without bound. What the last reader leaves is kept for the next.
//   - CheckpointContainer answers Unimplemented, and so do Exec, Attach and
//     PortForward unless there is a [Streamer]. The verbose forms of statuses
//     say nothing more than the others.
//   - Nothing runs: mounts, commands, environment, resources and security
//     settings are stored and shown. The memory limit has an effect, and the
//     command where a program is given for it. A log is opened for every line.
//   - Stats are what the programs say: CPU limits slow nobody down, usage,
//     working set and RSS are one, the network moves no bytes, pressure is not
//     told, and metrics are a few.
//   - A full disk refuses pulls and nothing else; what containers would write
//     beyond its end is not there.
//   - Pods have IPv4 addresses at which nothing listens without Config.Listen. With
//     that of a [Network] they are reached in memory, and by its Dial alone.
//
// Node has every method of the RuntimeService of cri-api v0.36. Version v0.37
// adds CheckpointPod and RestorePod to that interface, with types that v0.36
// does not have; against v0.37 a Node still satisfies any interface that asks
// for less.
//
// # Testing your code with it
//
// See the example of [New]: an agent of a few lines keeps a pod running, its
// container is killed, and the record of calls shows what the agent did. For
// tests of time, use a synctest bubble over the Go interface or over an
// in-memory listener; a unix socket keeps a bubble's clock from moving.
package fakecri
