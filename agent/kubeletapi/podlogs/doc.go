// Package podlogs reads and follows the log files that a CRI runtime writes for containers.
//
// # What it does
//
// [Copy] writes the part of a container's log that [Options] select, starting with the oldest
// file: rotated files, including compressed ones, and the file that the runtime writes to. With
// Follow it continues after rotations and restarts of the container, until its [Source] has
// ended. [ParseLine] parses a line of such a log.
//
// # What you supply
//
// You supply the directory of all logs, and the container's directory in it. File names are the
// kubelet's: 3.log is the log of the fourth instance, and 3.log.20060102-150405 and
// 3.log.20060102-150405.gz are rotated files, as package logrotate names them.
//
// # What it guarantees
//
//  1. Each complete line is written once, in the order of the files, even if the log is rotated
//     meanwhile. Lines of files that rotation deletes before they were read are missing.
//  2. Parts of a line that the runtime has split (tag P) are joined, by stream, even across a
//     rotation. A line of more than a megabyte is written in pieces, each as a line.
//  3. Only regular files in the container's directory are read, and nothing outside the root,
//     even if there are symbolic links.
//  4. Memory does not depend on the size of the log, except for 16 bytes for each line of
//     TailLines and the names of the files. At most three files are open.
//  5. Lines that are not valid log lines are ignored.
//  6. With Follow, a file that is truncated in place is read again from its start. Data written
//     before the truncation and not read yet is lost.
//
// # Goroutines and locking
//
// Copy runs in the caller's goroutine. With Follow it starts one more goroutine for file system
// events of the kernel, which has ended when Copy returns. Without such events, Copy checks the
// files once a second.
//
// # Differences from the kubelet
//
//   - Rotated files are read. The kubelet's log of a container begins with its last rotation
//     (kubernetes#59902).
//   - Follow continues with the next instance of the container. The kubelet's ends.
//   - TailLines counts whole lines, and only those of the selected stream.
//   - Lines of both streams are never mixed within a line.
//
// # Testing your code with it
//
// Write log files into a temporary directory, as the example does.
package podlogs
