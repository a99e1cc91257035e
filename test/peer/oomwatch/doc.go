// Package oomwatch compares package oomwatch with the kubelet's OOM watcher and its
// parsers of the kernel's log.
//
// A world is a log as /dev/kmsg gives it: dumps of kernels since 5.3,
// of machines and cgroups that have no memory left, of whole groups, without their
// first lines, without a death, overwritten in their middle, torn into continuation
// records, written slowly or mixed with each other; paths of both cgroup drivers and
// versions; names of processes with any bytes, or none; lines of other programs, and of
// other parts of the kernel, that look like those about memory, and records that are
// none. In some worlds the log begins before the start, is never quiet, has a clock that
// drifts, is read late, or has an overrun; reading or opening it fails, the watcher
// is restarted at its position, the machine at another boot, and counters of cgroups rise.
//
// Each step adds records to the log, and waits until both sides have told all. Compared
// are the kills: process, cgroup of the victim, cgroup whose limit was reached,
// constraint and time, and the events about the node.
//
// They are compared twice. What the kubelet tells of the log is often wrong, and a rule
// says why. So its parser also reads a plain log, in which the same kills stand in
// order, each in the form that the parser knows: where a fact begins with "plainly",
// ours must say of the real log what the kubelet says of the plain one.
//
// What the kubelet never tells is compared with what the world has written into the log:
// sizes and users of processes, kinds of kills, records that were lost, choices after
// which nobody was killed, the position to resume at, and the events about pods.
//
// Left out: the files of counters, and budgets of events.
package oomwatch
