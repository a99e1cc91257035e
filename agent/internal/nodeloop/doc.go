// Package nodeloop manages the node of an agent: it reports the node's status and keeps the
// node usable.
//
// # What it does
//
// A [Loop] gets the runtime's status and the host's facts, and computes the node from both
// ([Loop.Node]). It evicts pods before the node runs out of a resource, deletes unused images,
// removes exited containers and logs without a pod, rotates logs, and reports OOM kills of the
// kernel. Each part removes different data:
//
//	pod loop     all data of pods that no source defines any more, or that were evicted
//	containers   exited containers of pods that a source defines, except the newest of each
//	             name; log folders without a pod
//	images       images that the agent has pulled and that nothing uses
//	logs         old log lines of running containers
//	eviction     pods, if the other parts do not free enough
//
// # What you supply
//
// You supply a runtime, a host, a store, and the functions of the pod loop ([Pods]). A missing
// capability of the host disables what depends on it. Without statistics, no pod is evicted and
// there is no summary. Without the image filesystem, images are not deleted to free space.
// Without sources of OOM kills, none is reported. Without a folder for pod logs, logs are
// neither rotated nor removed.
//
// # What it guarantees
//
//  1. Before every source of pods has called set and the runtime was listed once, no threshold
//     is evaluated and nothing is removed.
//  2. The node becomes not ready when the runtime has not responded for 30 s, and at once when
//     the runtime reports a problem. A runtime that hangs is detected within 11 s.
//  3. [Loop.Node] returns the same pointer until the node has changed. Config.NodeStatus gets
//     a copy without its earlier changes: what it no longer adds disappears.
//  4. An image that another program has pulled is not deleted. A restarted agent knows which
//     images it has pulled.
//  5. An OOM kill is reported once, even over restarts. The report waits up to 10 s until the
//     runtime shows the container that was hit. A kill in a pod of another agent is not
//     reported.
//  6. An idle loop requests the runtime's status 7.5 times a minute, and the images and
//     containers once a minute.
//
// # Goroutines and locking
//
// New starts nothing. [Loop.Run] runs each part in a goroutine and joins them all. All methods
// may be called by several goroutines and from callbacks. Only [Loop.AwaitNode], [Loop.Plan],
// [Loop.Ranking] and [Loop.Summary] may block. Config.NodeStatus is called with a lock held and
// must not call the Loop. No other callback is called with a lock of the Loop held. Callbacks
// of package oomwatch are called with a lock of its watcher held, which no method of the Loop
// needs.
//
// # Differences from the kubelet
//
//   - The kubelet gets the runtime's status every 5 s with a timeout of two minutes. Here it is
//     every 8 s with a timeout of 3 s, every 2 s while there is a problem, and at once when
//     relists start or stop failing.
//   - The kubelet deletes all unused images; here only images that the agent has pulled are
//     deleted, unless Config.TakeOver is set.
//   - When disk space is short, the kubelet deletes all unused images; here only as many as
//     needed.
//   - The layer of an evicted pod counts as not yet freed for 5 s after its removal, because
//     containerd deletes layers in the background.
//
// Each manager lists its own differences.
//
// # Testing your code with it
//
// Run the loop in a testing/synctest bubble with a fakecri.Node as the runtime and a
// hand-written host.Host, as the tests of this package do.
package nodeloop
