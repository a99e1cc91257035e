// Package nodeloop manages the node of an agent: it computes the node's status, and frees
// resources before the node runs out of them.
//
// # What it does
//
// A [Loop] gets the runtime's status and the host's facts, and computes the node from both: see
// [Loop.Node]. It evicts pods before the node runs out of a resource, deletes unused images,
// removes exited containers, removes log folders without a pod, rotates logs, and reports OOM
// kills. The pod loop and each part of this loop remove different data:
//
//	pod loop     all data of evicted pods, and of pods that no source defines any more
//	containers   exited containers of pods that a source defines, except the newest of each
//	             name; log folders without a pod
//	images       unused images that the agent has pulled
//	logs         old log lines of running containers
//	eviction     pods, if the other parts do not free enough
//
// # What you supply
//
// You supply a runtime, a host, a store, and the functions of the pod loop ([Pods]). If the host
// has no statistics, the loop evicts no pods and has no summary. If the host does not measure the
// image filesystem, the loop does not delete images to free space. If the host has no sources of
// OOM kills, the loop reports no OOM kills. If Config.PodLogs is empty, the loop does not rotate or
// remove logs.
//
// # What it guarantees
//
//  1. Until every source has defined its pods and the first relist is complete, the loop
//     evaluates no thresholds, and removes no containers and no log folders. Image garbage
//     collection and log rotation do not wait.
//  2. The node becomes not ready when the runtime has not responded for 30 s, and immediately when
//     the runtime reports a problem. If the runtime hangs, [Loop.Checks] reports this within 11 s.
//  3. [Loop.Node] returns the same pointer until the node has changed. Each call of
//     Config.NodeStatus receives a copy of the node without the changes of earlier calls. So if
//     NodeStatus no longer adds a label or a condition, the label or the condition disappears.
//  4. Without Config.TakeOver, the loop deletes only images that the agent has pulled. A restarted
//     agent knows which images the earlier agent has pulled.
//  5. The loop reports an OOM kill once, even if the agent restarts. But after a crash of the
//     agent, the loop may report the kills of the last 10 s before the crash again. Before a
//     report, the loop waits up to 10 s until the pod loop has observed the container of the kill.
//     Without Config.TakeOver, the loop does not report a kill in a pod of another agent.
//  6. On an idle node, the loop requests the runtime's status 7.5 times a minute, and lists
//     images and containers once a minute.
//
// # Goroutines and locking
//
// New starts nothing. [Loop.Run] runs each part in a goroutine and joins them all. All methods are
// safe for concurrent use. Only [Loop.AwaitNode], [Loop.Plan], [Loop.PlanEviction], [Loop.Ranking]
// and [Loop.Summary] may block. Callbacks may call all other methods. Config.NodeStatus is an
// exception: the Loop calls NodeStatus with a lock held, so NodeStatus must not call the Loop. The
// Loop holds no lock during other callbacks. The Watcher of package oomwatch holds its own lock
// while it calls its Observer. No method of the Loop needs this lock.
//
// # Differences from the kubelet
//
//   - The kubelet gets the runtime's status every 5 s with a timeout of two minutes. Here, the loop
//     gets the status every 8 s with a timeout of 3 s, and every 2 s while the runtime has a
//     problem. The loop also gets the status immediately when a relist fails after a success, or
//     succeeds after a failure.
//   - The kubelet deletes unused images that other programs have pulled. Here, the loop deletes
//     such images only if Config.TakeOver is set.
//   - Under disk pressure, the kubelet deletes all unused images. Here, the loop deletes only as
//     many images as needed. To free inodes, it deletes all unused images as the kubelet does.
//   - After an eviction, the kubelet evaluates the thresholds again when the pod worker has
//     finished. Here, the loop waits 5 s after the containers of the pod are removed, because
//     containerd deletes layers in the background.
//
// Each manager lists its own differences.
//
// # Testing your code with it
//
// Run the loop in a testing/synctest bubble with a fakecri.Node as the runtime and a
// hand-written host.Host, as the tests of this package do.
package nodeloop
