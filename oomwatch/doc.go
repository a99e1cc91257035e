// Package oomwatch tells of each kill that the kernel makes for want of memory: once,
// with the pod and the container that it hit. The kubelet's counterpart is its OOM
// watcher with cadvisor's parser.
//
// # What it does
//
// A [Watcher] takes what [Source]s see, joins what several say of the same kill, adds
// whose it was and calls a handler. [Kmsg] reads the kernel's log, which says most: who
// was killed, how large it was, whose limit was reached. [Counters] reads how often the
// kernel has killed in each cgroup, which is never overwritten. Either works without
// the other. [Parser], [ParseRecord] and [ParseCgroup] are the pure functions below
// them, for those who have a log in a file. [Reporter] makes events of kills.
//
// The log comes first, as kernels since 5.3 write it. Counters are for what it does not
// tell: kills that were overwritten, cgroups that it leaves out, and all of them where it
// can't be read.
//
// # What you supply
//
// Two sources, normally:
//
//	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{})
//	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: "/sys/fs/cgroup", Parent: "/kubepods"})
//	watcher, err := oomwatch.New(oomwatch.Config{Sources: []oomwatch.Source{kmsg, counters}, Resume: saved, Handler: handle})
//
// and a place for [Watcher.Position], if what happens while the agent is down is to be
// told when it is up again. Reading /dev/kmsg takes CAP_SYSLOG where
// kernel.dmesg_restrict is set. Without it [Watcher.Sources] says so, the reader is
// tried again every half minute, and the counters tell what they can: the cgroup and
// the number, not the process.
//
// # What it guarantees
//
//  1. A kill is told once, whoever sees it, in whatever order. Where the kernel left out
//     the dump, as it does of all but ten in five seconds, or part of it was overwritten,
//     the process is known and its cgroup is not: that is then the cgroup of a counter
//     that rose at the time and that nothing else explains. Where several did it may be
//     another kill's. Such a kill right after that of a group counts as one of it if the
//     same memory had run out, for the log does not tell them apart.
//  2. One whose line in the log is complete is told after [KmsgConfig.Hold] and a moment,
//     in which others of its group may follow, or at once when the next kill begins.
//     What only a counter tells of is told after [Config.Window], and so is one whose
//     cgroup the log leaves out. The log's kills are told in its order.
//  3. Nothing is lost silently: overwritten records and kills that found the queue full
//     are counted, in the next kill and in the Observer.
//  4. A damaged record costs no more than itself. Lines that a process wrote into the
//     log are no kills, whatever they say.
//  5. A source that fails is tried again for ever, and goes on where it was.
//  6. What was in the log, and in the counters, before the first start is not told; after
//     a restart with a Position all that the log has since then is, also of a kill whose
//     first lines were written before. A kill that the handler was busy with when the
//     watcher stopped is told again, and no other.
//  7. A container that makes cgroups can't name them so that another pod seems to be hit.
//
// # Goroutines and locking
//
// New starts nothing. Run has a goroutine for each source and one for the handler, and
// returns when they have. A slow handler delays nobody but itself, until
// [Config.QueueSize] kills wait. Observer callbacks are called with a lock held: they
// must not block and not call the Watcher.
//
// # Differences from the kubelet
//
//   - The kubelet's watcher ends at the first overrun of the log, until the kubelet is
//     restarted; here an overrun is counted and reading goes on.
//   - The kubelet tells of each kill in the log whenever it starts (kubernetes#133260);
//     here a kill is told once.
//   - The kubelet's expression does not match what kernels since 5.0 write of a kill for
//     want of the machine's memory, so the victim's cgroup and the constraint are lost;
//     here both are known.
//   - For the same reason the kubelet takes the time of such a kill from the line of the
//     death, which may come late; here it is that of the choice.
//   - In the kubelet, a victim whose cgroup the log does not name is in the cgroup /; here
//     its cgroup is empty.
//   - Of a cgroup that the kernel kills as a whole, the kubelet tells of one process; here
//     all are told.
//   - The kubelet does not see a kill of which the kernel left out the dump; here it is
//     one.
//   - The kubelet takes a dump after which nobody was killed for a kill, or for the begin
//     of the next one; here it is none.
//   - The kubelet mixes up dumps that the kernel writes at the same time; here they are
//     told apart.
//   - The kubelet does not see the death of a process without a name; here it is one.
//   - The kubelet takes the clock of the log for right, though it drifts; here a kill that
//     is read as it is logged has the right time.
//   - The kubelet believes what a program writes into the kernel's log; here only lines of
//     the kernel count.
//   - The kubelet does not read a line that goes on in another record; here its parts are
//     joined.
//   - The kubelet reads the logs of all kernels; ours what they write since 5.3.
//   - A process or a cgroup whose name looks like a field of the line misleads the
//     kubelet's expression; here the line is read from both ends.
//   - The kubelet has the names of processes and cgroups as the log escapes them; here they
//     are as the kernel has them.
//   - The cgroup whose limit was reached and that of the victim are named for what they
//     are, and both are told; the kubelet has their names the wrong way round and knows
//     only kills of the whole machine.
//   - A pod has its own event, a few at once and then one a minute; so far the kubelet
//     has none for fear of too many (kubernetes#69676).
//   - Times are right to the millisecond, also after a suspend, of what is read as it is
//     logged; those of an older log are as right as the kernel's clock for it, which drifts.
//     The kubelet's are right to the second, until the first suspend.
//
// Counters have no wake-up: the kernel counts all its kills, those at the limits of
// cgroups too, in one file, which is read each second, and only when that number rises
// is there anything to look for. inotify
// on version 2 would tell a second earlier, which the log does anyway; the eventfd of
// version 1's memory.oom_control is signalled to all cgroups below the one that ran out.
//
// # Testing your code with it
//
// A Source of your own is three methods; the package's example has one. [KmsgConfig.Open]
// takes any log, and [Counters.Look] any folder with files like the kernel's.
package oomwatch
