// Package podlogs reads and follows the log files that a CRI runtime writes for containers.
//
// # What it does
//
// [Copy] writes the part of a container's log that [Options] select. It reads the rotated
// files, compressed or not, from the oldest to the newest, and then the file that the runtime
// writes to. With Follow, Copy continues after rotations of the log and restarts of the
// container, until its [Source] has ended. [ParseLine] parses a line of a container's log.
//
// # What you supply
//
// You supply the directory of all logs, and the path of the container's directory below it. File
// names are those of the kubelet and of package logrotate. For example, 3.log is the log of the
// fourth instance. 3.log.20060102-150405 is a rotated file, and 3.log.20060102-150405.gz is a
// rotated and compressed file.
//
// # What it guarantees
//
//  1. Copy writes each complete line once, in the order of the files, even if the log is rotated
//     during the call. If the rotation deletes a file before Copy has read the file, the lines of
//     this file are missing.
//  2. If the runtime has split a line (tag P), Copy joins the parts, separately for each
//     stream, even across a rotation. Copy splits a line of more than a megabyte into several
//     lines.
//  3. Copy only reads regular files in the container's directory, and nothing outside the root,
//     even if the directories contain symbolic links.
//  4. The memory use does not depend on the size of the log, except for the file names and
//     about 40 bytes for each line of TailLines. At most three files are open.
//  5. Lines that are not valid log lines are ignored.
//  6. With Follow, if a file is truncated in place, Copy reads the file again from its start.
//     Data that was written before the truncation and that Copy has not read yet is lost.
//
// # Goroutines and locking
//
// Copy runs in the caller's goroutine. With Follow, it starts a goroutine that receives file
// system events from the kernel; this goroutine has ended when Copy returns. If no event
// arrives, Copy checks the files once a second.
//
// # Differences from the kubelet
//
//   - Ours reads rotated files. The kubelet's log of a container begins with its last rotation
//     (kubernetes#59902).
//   - In ours, Follow continues with the next instance of the container. In the kubelet,
//     following ends with the instance.
//   - In ours, TailLines counts whole lines, and only lines of the selected stream. The kubelet
//     counts each part of a split line.
//   - In ours, a returned line never contains parts of both streams. In the kubelet, it may.
//
// # Testing your code with it
//
// Write log files into a temporary directory, as the example does.
package podlogs
