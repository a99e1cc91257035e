// Package podlogs reads the logs that a CRI runtime writes for containers: what is
// there, and what comes.
//
// # What it does
//
// [Copy] writes what [Options] want of the log of one instance of a container, from its
// oldest file on: those that were rotated, compressed ones too, and the one that is
// written to. With Follow it goes on through rotations and restarts of the container
// until its [Source] has ended. [ParseLine] reads a line of such a log.
//
// # What you supply
//
// A folder, and the container's folder in it. Names are the kubelet's: 3.log is that of
// the fourth instance, 3.log.20060102-150405 and 3.log.20060102-150405.gz are rotated,
// as package logrotate does it.
//
// # What it guarantees
//
//  1. Each whole line is written once, in the order of the files, also if the log is
//     rotated meanwhile; but for lines of files that rotation has removed before they
//     could be read.
//  2. Parts of a line that the runtime has split (tag P) are put together, by stream, also
//     if a rotation came between them, and of the last lines from the first part on. A
//     line of more than a megabyte comes in pieces, each as a line.
//  3. Nothing but regular files in the container's folder is read, and nothing outside
//     the root, whatever links lead there.
//  4. Memory does not depend on the size of the log, but for 16 bytes for each of the
//     last lines that are asked for, and the names of its files. At most three of these
//     are open at a time.
//  5. Lines that are no log lines are passed over.
//
// # Goroutines and locking
//
// Copy runs in the caller's goroutine. Who follows has another one, for the events of
// the kernel, which has ended when Copy returns. Where there are no such events it looks
// once a second.
//
// # Differences from the kubelet
//
//   - Rotated files are read, too: there the log of a container begins with its last
//     rotation (kubernetes#59902).
//   - A follower goes on with the next instance of the container; there it ends.
//   - The last lines are counted as lines, not as parts of lines, and of the stream that
//     is asked for.
//   - Lines of both streams are never mixed within a line.
package podlogs
