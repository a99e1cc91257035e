// Package oomwatch compares package oomwatch with the kubelet's OOM watcher and its parsers
// of the kernel log.
//
// A world is the content of /dev/kmsg. It contains dumps of kernels since 5.3 about the OOM
// kills of machines, cgroups and whole groups. Dumps can lack their first lines or the line
// of the kill, be overwritten in the middle, be split into continuation records, be written
// slowly, or be interleaved with each other. Paths of both cgroup drivers and versions occur,
// and process names with any bytes or none. Lines of other programs and of other parts of the
// kernel can resemble lines about memory, and some records are malformed. In some worlds the
// log begins before the start of the watcher, is never quiet, has a clock that drifts, is
// read late, or has an overrun. Opening or reading it can fail, the watcher can be restarted
// at its position, the machine can be rebooted, and the counters of cgroups can rise.
//
// Each step adds records to the log, and waits until both sides have reported all kills. The
// facts are the kills with process, cgroup of the victim, cgroup whose limit was reached,
// constraint and time, and the events of the node.
//
// These facts are compared twice. The kubelet's report about the log is often wrong, and a
// rule gives the reason. Therefore the kubelet's parser also reads a plain log, which
// contains the same kills in order, each in the form that the parser supports. Facts whose
// name begins with "plainly" compare our report about the real log with the kubelet's report
// about the plain log.
//
// Facts that the kubelet never reports are compared with the content that the world has
// written into the log: sizes and users of processes, kinds of kills, lost records, OOM dumps
// without a kill, the position at which to resume, and the events of pods.
//
// Not compared: the files of counters, and event budgets.
package oomwatch
