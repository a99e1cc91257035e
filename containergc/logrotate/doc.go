// Package logrotate keeps the logs of running containers small.
//
// # What it does
//
// Container runtimes append to a log for as long as a container runs, and leave it
// to their client to make room. A [Rotator] looks at the size of each log every ten
// seconds. One that is too large gets another name, the runtime is told to write to a
// new file, and what was rotated the time before is compressed. [Rotator.Rotate] does
// one pass, [Rotator.Run] does them for ever. The baseline is kubelet 1.36.
//
// Names are the kubelet's, which log shippers know:
//
//	0.log                         what the runtime writes to
//	0.log.20060102-150405         rotated last; shippers may still read it
//	0.log.20060102-150405.gz      rotated before
//	0.log.20060102-150405.tmp     being compressed
//
// What is left of a container that is gone is not this package's: containergc removes
// all of it with the container's log.
//
// # What you supply
//
// The three calls of [Runtime], which any CRI client has. The list may be replaced by
// what the embedder knows anyway, see [Config].Running. Sizes as in a kubelet's
// configuration are read by [ParseMaxSize].
//
// # What it guarantees
//
//  1. No line is lost, and none is there twice after the next rotation, whenever the
//     process ends: a rotation that was cut short is finished, undone or done again by
//     a later one. Only whole files go, the oldest, when there are more than MaxFiles.
//  2. If the runtime does not take the rotation, the log gets its name back. It never
//     replaces a file that the runtime has made meanwhile.
//  3. There are never more than MaxFiles files of one log, temporary ones not counted.
//  4. A full disk stops compression, not rotation, and the oldest files go first.
//  5. Compressed files are on the disk before what they replace goes, and have its age
//     and permissions.
//  6. Nothing outside PodLogs is touched, and nothing but regular files is read,
//     whatever links a pod has planted there.
//  7. A pass without anything to rotate is one list and one lstat for each container.
//
// # Goroutines and locking
//
// New starts nothing. A pass uses up to Workers goroutines, which end before it does;
// passes wait for each other. A log that fails waits 10 s, 20 s, and so on up to 5 min.
// Between renaming a log and telling the runtime, the end of a context is not looked at.
// CallTimeout is real time even on a fake clock.
//
// # Differences from the kubelet
//
//   - The kubelet asks for a container's status in each pass, and does nothing without it;
//     ours asks once in a container's life.
//   - The kubelet tries to rotate a log again in each pass; here a log that failed waits
//     10 s, 20 s, and so on up to 5 min.
//   - In the kubelet a failed compression keeps the log from being rotated, so that it
//     grows for as long as the disk is full; here the log is rotated all the same.
//   - Two rotations within a second, or after the clock has stepped back, have different
//     names in the order of time; in the kubelet one log replaces the other, or the newest
//     is removed as the oldest.
//   - If the runtime reports a failure to reopen a log but has made a new file, the
//     kubelet replaces that by the old one, and lines are lost; ours keeps both.
//   - The kubelet compresses and removes every file whose name begins with that of the
//     log; ours only those whose names end in a time.
//   - The kubelet follows a log that is a symbolic link; ours leaves alone what is not a
//     regular file.
//   - The kubelet rotates a log wherever it is; ours leaves alone what is not below
//     PodLogs.
//   - If a rotation ended before the runtime knew of it, ours tells the runtime in a later
//     pass; in the kubelet the container writes to the rotated file until that is
//     compressed.
//   - A rotated log that is the log itself by another name, which a crash may leave, loses
//     that name; the kubelet compresses it, and its lines are there twice.
//   - Compressed files are synced before they replace others.
//   - One container whose runtime hangs costs CallTimeout, less and less often.
//   - A maximum size of 0, with which the kubelet rotates in every pass, is refused.
//
// # Testing your code with it
//
// Call Rotate instead of Run, with PodLogs in a temporary folder and the fake clock. The
// node of package fakecri writes logs there and reopens them.
package logrotate
