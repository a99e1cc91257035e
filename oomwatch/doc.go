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
// # What you supply
//
// Two sources, normally:
//
//	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{Resume: saved})
//	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: "/sys/fs/cgroup", Parent: "/kubepods"})
//	watcher, err := oomwatch.New(oomwatch.Config{Sources: []oomwatch.Source{kmsg, counters}, Handler: handle})
//
// and a place for [Watcher.Position], if what happens while the agent is down is to be
// told when it is up again. Reading /dev/kmsg takes CAP_SYSLOG where
// kernel.dmesg_restrict is set. Without it [Watcher.Sources] says so, the reader is
// tried again every half minute, and the counters tell what they can: the cgroup and
// the number, not the process.
//
// # What it guarantees
//
//  1. A kill is told once, whoever sees it, in whatever order. The exception: where the
//     log was overwritten in the middle of a dump, what its rest says is joined with a
//     counter that rose at that time, which may be another kill's.
//  2. One whose line in the log is complete is told after [KmsgConfig.Hold], in which
//     others of its group may follow, or at once when the next kill begins. What one
//     source alone tells of is told after [Config.Window].
//  3. Nothing is lost silently: overwritten records and kills that found the queue full
//     are counted, in the next kill and in the Observer.
//  4. A damaged record costs no more than itself. Lines that a process wrote into the
//     log are no kills, whatever they say.
//  5. A source that fails is tried again for ever, and goes on where it was.
//  6. What was in the log, and in the counters, before the first start is not told; after
//     a restart with a Position all since then is. A kill that the handler was busy
//     with when the watcher stopped is told again.
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
//   - An overrun of the log is counted and reading goes on; the kubelet's watcher ends
//     at the first one, until the kubelet is restarted.
//   - A restart tells nothing twice (kubernetes#133260).
//   - A kill for want of the machine's memory has the victim's cgroup; the kubelet's
//     expression does not match what kernels since 5.0 write.
//   - A group kill has all its victims, a dump that the kernel left out still is a kill,
//     one that found nobody is none, and interleaved ones are told apart.
//   - The cgroup whose limit was reached and that of the victim are named for what they
//     are, and both are told; the kubelet has their names the wrong way round and knows
//     only kills of the whole machine.
//   - A pod has its own event, a few at once and then one a minute; so far the kubelet
//     has none for fear of too many (kubernetes#69676).
//   - Times are right to the millisecond and after a suspend, not to the second.
//
// Counters have no wake-up: the kernel counts all its kills in one file, which is read
// each second, and only when that number rises is there anything to look for. inotify
// on version 2 would tell a second earlier, which the log does anyway; the eventfd of
// version 1's memory.oom_control is signalled to all cgroups below the one that ran out.
//
// # Testing your code with it
//
// A Source of your own is three methods; the package's example has one. [KmsgConfig.Open]
// takes any log, and [Counters.Look] any folder with files like the kernel's.
package oomwatch
