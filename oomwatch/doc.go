// Package oomwatch reports each OOM kill of the kernel exactly once, with the pod and the
// container that it hit. It corresponds to the kubelet's OOM watcher and cadvisor's
// parser.
//
// # What it does
//
// A [Watcher] collects what its [Source]s see, merges what several sources report of the
// same kill, adds the pod and the container, and calls a handler. [Kmsg] reads the
// kernel's log, which has the most details: which process was killed, its size, and whose
// limit was reached. [Counters] reads the kernel's kill counter of each cgroup, which is
// never overwritten. Each source works without the other. [Parser], [ParseRecord] and
// [ParseCgroup] are the pure functions they are built on, for callers that have a log in
// a file. [Reporter] records events about kills.
//
// The log is the main source, in the format of kernels since 5.3. Counters supply what
// the log lacks: kills whose records were overwritten, missing cgroup names, and all
// kills if the log cannot be read.
//
// # What you supply
//
// Normally, two sources:
//
//	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{})
//	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: "/sys/fs/cgroup", Parent: "/kubepods"})
//	watcher, err := oomwatch.New(oomwatch.Config{Sources: []oomwatch.Source{kmsg, counters}, Resume: saved, Handler: handle})
//
// and a place to store [Watcher.Position], so that kills that happen while the agent is
// down are reported when it is up again. Reading /dev/kmsg requires CAP_SYSLOG if
// kernel.dmesg_restrict is set. Without it, [Watcher.Sources] returns the error, the log
// is retried every half minute, and the counters report the cgroup and the number of
// kills, but not the process.
//
// # What it guarantees
//
//  1. A kill is reported once, whichever sources see it, in whatever order. If the
//     kernel omitted the dump, as it does for all but ten kills in five seconds, or
//     part of it was overwritten, the process is known and its cgroup is not. The kill
//     then gets the cgroup of a counter that rose at that time and that no other kill
//     explains. If there are several such counters, the cgroup may be that of another
//     kill. A kill without a dump right after a group kill counts as part of the group
//     if the same memory was exhausted, because the log does not distinguish them.
//  2. A kill whose line in the log is complete is reported shortly after
//     [KmsgConfig.Hold], during which others of its group may follow, or at once when
//     the next kill begins. A kill that only a counter reports, or whose cgroup is
//     missing in the log, is reported after [Config.Window]. Kills in the log are
//     reported in the order of the log.
//  3. Nothing is lost silently: overwritten records, and kills that were dropped
//     because the queue was full, are counted in the next kill and reported to the
//     Observer.
//  4. A damaged record affects only itself. Lines that a process wrote into the log
//     never count as kills.
//  5. A source that fails is retried until it works, and continues where it stopped.
//  6. Kills from before the first start, in the log or in the counters, are not
//     reported. After a restart with a Position, all kills since then that are still
//     in the log are reported, including a kill whose first lines were written before.
//     If the handler was running when the watcher stopped, its kill is reported again,
//     and no other.
//  7. A container that creates cgroups cannot choose their names so that a kill is
//     attributed to another pod.
//
// # Goroutines and locking
//
// New starts nothing. Run uses one goroutine per source and one for the handler, and
// returns when they have ended. A slow handler does not delay the sources; when
// [Config.QueueSize] kills are waiting, further ones are dropped. Observer callbacks are
// called with a lock held: they must not block or call the Watcher.
//
// # Differences from the kubelet
//
//   - The kubelet's watcher stops at the first overrun of the log, until the kubelet
//     is restarted; ours counts the overrun and continues.
//   - The kubelet reports each kill in the log again whenever it starts
//     (kubernetes#133260); ours reports a kill once.
//   - The kubelet's expression does not match the lines of kernels since 5.0 about
//     kills because the machine is out of memory, so that the victim's cgroup and the
//     constraint are lost; ours reports both.
//   - For the same reason the kubelet uses the time of the line about the victim's
//     death for such a kill, which may be late; ours uses the time when the victim was
//     chosen.
//   - If the log does not name the victim's cgroup, the kubelet reports the cgroup /;
//     ours reports an empty cgroup.
//   - If the kernel kills a whole cgroup, the kubelet reports one process; ours
//     reports all.
//   - The kubelet misses a kill for which the kernel omitted the dump; ours reports
//     it.
//   - The kubelet treats a dump without a kill as a kill, or as the start of the next
//     one; ours does not.
//   - The kubelet confuses dumps that the kernel writes at the same time; ours
//     separates them.
//   - The kubelet misses the death of a process without a name; ours reports it.
//   - The kubelet trusts the clock of the log, although it drifts; ours reports the
//     right time for a kill that is read when it is logged.
//   - The kubelet trusts lines that a program writes into the kernel's log; ours
//     accepts only lines of the kernel.
//   - The kubelet does not read a line that continues in another record; ours joins
//     its parts.
//   - The kubelet reads the logs of all kernels; ours the format since 5.3.
//   - A process or a cgroup whose name looks like a field of the line misleads the
//     kubelet's expression; ours parses the line from both ends.
//   - The kubelet reports the names of processes and cgroups as escaped in the log;
//     ours unescapes them.
//   - Ours reports the cgroup whose limit was reached and the cgroup of the victim;
//     the kubelet swaps the two names and uses only kills of the whole machine.
//   - Ours records an event for a pod, at first a few at once and then one per minute;
//     the kubelet has none, to avoid too many events (kubernetes#69676).
//   - Times of kills that are read when they are logged are correct to the
//     millisecond, also after a suspend; those of older log records are as accurate as
//     the kernel's clock for the log, which drifts. The kubelet's times are correct to
//     the second, until the first suspend.
//
// Counters are polled: the kernel counts all kills, including those at cgroup limits, in
// one file, which is read every second. The cgroups are read only when that number rises.
// On cgroup v2, inotify would report a kill up to a second earlier, but the log does so
// anyway. On v1, the eventfd of memory.oom_control signals all cgroups below the cgroup
// that ran out of memory.
//
// # Testing your code with it
//
// A Source of your own has three methods; the package's example has one.
// [KmsgConfig.Open] accepts any log, and [Counters.Look] works in any folder with files
// like the kernel's.
package oomwatch
