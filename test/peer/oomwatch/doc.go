// Package oomwatch compares package oomwatch with the kubelet's OOM watcher and its
// parsers of the kernel's log.
//
// A world is a log as /dev/kmsg gives it: dumps of kernels 4.x, 5.0 to 5.2 and since
// 5.3, of machines and cgroups that have no memory left, of whole groups, without their
// first lines, without a death, torn into continuation records or mixed with each
// other; paths of both cgroup drivers and versions; names of processes with any bytes;
// lines of other programs that look like the kernel's, and records that are none. Some
// worlds have a log before the start, or an overrun.
//
// Each step adds records to the log, and waits until both sides have told all. Compared
// are the kills: process, cgroup of the victim, cgroup whose limit was reached,
// constraint and second, and the events about the node.
//
// The world knows which processes the kernel killed, and a rule holds if ours told just
// that and the step has what the kubelet gets wrong.
//
// Left out: dumps of which the middle was overwritten, counters of cgroups, positions
// after a restart and events about pods, which the kubelet does not have.
package oomwatch
