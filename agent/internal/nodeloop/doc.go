// Package nodeloop does what an agent does for its node as a whole: it reports what the node
// is, and keeps it usable whatever pods do to it.
//
// # What it does
//
// A [Loop] asks the runtime for its state and the host for its facts, and computes the node
// from both ([Loop.Node]). It evicts pods before the node lacks something, deletes unused
// images, removes containers that have ended and logs without a pod, rotates logs, and
// reports OOM kills of the kernel. Who removes what:
//
//	pod loop     everything that is left of a pod that no source defines any more, or that
//	             was evicted
//	containers   containers that have ended of pods that a source defines, all but the last
//	             of a name; folders of logs without a pod
//	images       images that the agent has pulled and that nothing uses
//	logs         old lines of running containers
//	eviction     pods, when all that is not enough
//
// # What you supply
//
// A runtime, a host, a store, and what the loop asks of the pod loop ([Pods]). Each
// capability that the host lacks disables what needs it: without statistics no pod is
// evicted and there is no summary, without the filesystem of images they are not deleted for
// space, without sources of OOM kills none is reported. Without a folder of pod logs logs are
// neither rotated nor removed.
//
// # What it guarantees
//
//  1. Before every source of pods has answered and the runtime was listed once, no threshold
//     is looked at and nothing is removed.
//  2. The node is not ready when the runtime has been away for 30 s, and at once when the
//     runtime reports a problem. A runtime that hangs is noticed within 11 s.
//  3. [Loop.Node] returns the same pointer until something has changed. Config.NodeStatus
//     gets a copy without its earlier changes: what it does not add any more disappears.
//  4. An image that others have brought to the runtime is not deleted. A restarted agent knows
//     which images it has pulled.
//  5. An OOM kill is reported once, also over restarts. The report waits for up to 10 s until
//     the runtime shows the container that was hit. A kill in a pod of another agent is not
//     reported.
//  6. An idle loop asks the runtime 7.5 times a minute for its state and once for images and
//     containers.
//
// # Goroutines and locking
//
// New starts nothing. [Loop.Run] runs each part on a goroutine and joins all. All methods may
// be called by several goroutines, also from callbacks; only [Loop.AwaitNode], [Loop.Plan],
// [Loop.Ranks] and [Loop.Summary] wait for others. Config.NodeStatus is called with a lock
// held, and must not call the loop. Other callbacks are made without a lock of the loop. Those of package oomwatch are made with a lock of the watcher; no method of the loop
// needs that lock.
//
// # Differences from the kubelet
//
//   - The kubelet asks the runtime for its state every 5 s with a patience of two minutes; here
//     every 8 s with a patience of 3 s, every 2 s while there is a problem, and at once when
//     relists begin or end to fail.
//   - The kubelet deletes all unused images; here only those that the agent has
//     pulled, unless Config.TakeOver is set.
//   - For a lack of disk space the kubelet deletes all unused images; here as many as are
//     needed.
//   - The layer of an evicted pod counts as being freed for 5 s after its removal, because
//     containerd deletes layers in the background.
//
// The managers list their own.
//
// # Testing your code with it
//
// The loop works in a testing/synctest bubble with a fakecri.Node as the runtime and a
// host.Host written by hand, as in the tests of this package.
package nodeloop
