// Package oomwatch reports each OOM kill of the kernel exactly once, with the pod and the
// container of the victim. It replaces the kubelet's OOM watcher and cadvisor's parser.
//
// # What it does
//
// A [Watcher] collects the kills that its [Source]s observe, merges the observations of
// the same kill, adds the pod and the container, and calls a handler. [Kmsg] reads the
// kernel's log, which has the most details: which process was killed, its memory usage,
// and the cgroup whose limit was reached. [Counters] reads the kernel's kill counter of
// each cgroup, which is never overwritten. Each source works without the other. [Parser],
// [ParseRecord] and [ParseCgroup] do no I/O. Call them directly if you have a log in a
// file. [Reporter] records events about kills.
//
// The log is the main source. It must have the format of kernels since 5.3. Counters
// supply what the log lacks: kills whose records were overwritten, missing cgroup names,
// and all kills if the log cannot be read.
//
// # What you supply
//
// Normally, you supply two sources:
//
//	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{})
//	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: "/sys/fs/cgroup", Parent: "/kubepods"})
//	watcher, err := oomwatch.New(oomwatch.Config{Sources: []oomwatch.Source{kmsg, counters}, Resume: saved, Handler: handle})
//
// You also supply a place to store [Watcher.Position], so that kills that happen while the
// agent is down are reported after its restart. Reading /dev/kmsg requires CAP_SYSLOG if
// kernel.dmesg_restrict is set. If the log cannot be read, [Watcher.Sources] returns the
// error, and the Watcher tries to open the log again, at least every 30 s. The counters
// then report the cgroup and the number of kills, but not the process.
//
// # What it guarantees
//
//  1. Each kill is reported once, whichever sources observe it, in whatever order. The
//     kernel writes at most ten dumps (the log lines about the memory and the chosen
//     process) in five seconds, and parts of a dump may be overwritten. If the dump of a
//     kill is missing or incomplete, the log contains the process but not its cgroup. The
//     kill then gets the cgroup of a counter that rose at that time and whose rise no other
//     kill explains. If there are several such counters, the kill may get the cgroup of
//     another kill. After a group kill (memory.oom.group), a death without a dump may be
//     another victim of the group or a separate kill; the log does not distinguish them.
//     The Watcher assigns such a death to the group if the same kind of memory was
//     exhausted.
//  2. A kill whose log lines are complete is reported shortly after [KmsgConfig.Hold],
//     because more kills of its group may follow until then. It is reported at once when
//     the log has the first line of the next kill. A kill that only a counter reports, or
//     whose cgroup is missing in the log, is reported after [Config.Window]. Kills in the
//     log are reported in the order of the log.
//  3. Nothing is lost silently: overwritten records, and kills that were dropped because
//     the queue was full, are counted in [Kill.Lost] of the next kill and reported to the
//     Observer.
//  4. A damaged record is skipped and does not affect the reading of other records. Lines
//     that a process wrote into the log never count as kills.
//  5. The Watcher retries a failed source until it works. The source then continues where
//     it stopped.
//  6. Kills from before the first start, in the log or in the counters, are not reported.
//     After a restart with a Position, all kills after this Position that are still in the
//     log are reported, including a kill that was incomplete when the Position was saved.
//     If the Watcher stopped while the handler was running, the kill that was passed to the
//     handler is reported again. Other handled kills are not reported again.
//  7. A container that can create cgroups cannot choose names that attribute a kill to
//     another pod.
//
// # Goroutines and locking
//
// New starts nothing. Run uses one goroutine per source and one for the handler, and
// returns when they have ended. A slow handler does not delay the sources; when
// [Config.QueueSize] kills are waiting, further kills are dropped. Observer callbacks are
// called with a lock held: they must not block or call the Watcher.
//
// # Differences from the kubelet
//
//   - The kubelet's watcher stops at the first overrun of the log, until the kubelet
//     is restarted; ours counts the overrun and continues.
//   - The kubelet reports each kill in the log again whenever it starts
//     (kubernetes#133260); ours reports a kill once.
//   - If the machine is out of memory, the kubelet's regular expression does not match
//     the kernel's line about the kill since Linux 5.0, so that the victim's cgroup and
//     the constraint are lost; ours reports both.
//   - For a kill because the machine is out of memory, the kubelet uses the time of the
//     line about the victim's death, which may be late; ours uses the time when the
//     kernel chose the victim.
//   - If the log does not name the victim's cgroup, the kubelet reports the cgroup /;
//     ours reports an empty cgroup.
//   - If the kernel kills a whole cgroup, the kubelet reports one process; ours
//     reports all.
//   - The kubelet misses a kill for which the kernel omitted the dump; ours reports
//     it.
//   - The kubelet treats a dump without a kill as a kill, or as the start of the next
//     kill; ours does not.
//   - The kubelet confuses dumps that the kernel writes at the same time; ours
//     separates them.
//   - The kubelet misses the death of a process without a name; ours reports it.
//   - The kubelet trusts the clock of the log, although it drifts; ours reports the
//     right time for a kill that is read when it is logged.
//   - For a kill that is read late, the time that ours reports may be too late by up to
//     1/2000 of the time since the last record, because the log's clock may have drifted
//     by that much; the kubelet uses the time in the log.
//   - The kubelet trusts lines that a program writes into the kernel's log; ours
//     accepts only lines of the kernel.
//   - The kubelet does not read a line that continues in another record; ours joins
//     its parts.
//   - The kubelet reads the logs of all kernels; ours reads only the log format of
//     kernels since 5.3.
//   - A process or a cgroup whose name looks like a field of the line misleads the
//     kubelet's regular expression; ours parses the line from both ends.
//   - The kubelet reports the names of processes and cgroups as escaped in the log;
//     ours unescapes them.
//   - Ours reports the cgroup whose limit was reached and the cgroup of the victim; the
//     kubelet swaps the two names, and ignores kills at the limit of a cgroup.
//   - Ours records events about each pod, by default five at once and then at most one
//     per minute; the kubelet records no events about pods, to avoid too many events
//     (kubernetes#69676).
//   - The kubelet's times are correct to the second, until the first suspend; ours are
//     correct to the millisecond, also after a suspend, for kills that are read when they
//     are logged. For older log records, our times are as accurate as the kernel's clock
//     for the log, which drifts.
//
// [Counters] polls. Every second, it reads the file in which the kernel counts all kills,
// including kills at cgroup limits. It reads the cgroups at the start, and twice after
// each rise of this count. On cgroup v2, inotify would report a kill up to a second
// earlier, but the log does so anyway. On v1, the eventfd of memory.oom_control does not
// help, because the kernel also signals the eventfds of all cgroups below the cgroup that
// ran out of memory.
//
// # Testing your code with it
//
// A Source of your own needs three methods, as in the package's example. [KmsgConfig.Open]
// may return any [KmsgLog], and [Counters.Look] works in any folder with files in the
// kernel's format.
package oomwatch
