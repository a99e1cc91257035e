// Package logrotate limits the size of the logs of running containers.
//
// # What it does
//
// A container runtime appends to a log as long as the container runs. The client of the runtime
// must limit the size of the log. Every ten seconds, a [Rotator] checks the size of each log. It
// renames a log that is too large, makes the runtime write to a new file, and compresses the logs
// that were rotated before. [Rotator.Rotate] runs one pass, [Rotator.Run] runs passes until its
// context is done. The baseline is kubelet 1.36.
//
// The file names are the kubelet's, which log shippers know:
//
//	0.log                         the log that the runtime writes to
//	0.log.20060102-150405         the last rotated log, which shippers may still read
//	0.log.20060102-150405.gz      an earlier rotated log, compressed
//	0.log.20060102-150405.tmp     a compressed file that is not complete yet
//
// This package does not delete the files of containers that no longer exist: containergc
// deletes all of them together with the container's log.
//
// # What you supply
//
// You supply [Runtime], which any CRI client implements. An agent that already knows the
// running containers can supply their logs as [Config].Running. Then no list is requested
// from the runtime. [ParseMaxSize] parses sizes as in a kubelet's configuration.
//
// # What it guarantees
//
//  1. The process may end at any time, and no line is lost. The next rotation completes,
//     undoes or repeats the interrupted rotation. After that, no line is duplicated. Lines
//     are deleted only with whole files: a rotation deletes the oldest files if the log
//     would have more than MaxFiles files.
//  2. If the runtime fails to reopen the log and has not created a new file, the log
//     gets its old name back. A file that the runtime has created is never replaced.
//  3. There are never more than MaxFiles files of one log, not counting temporary
//     files.
//  4. A full disk prevents compression but not rotation: a rotation first deletes the
//     oldest files.
//  5. Compressed files are synced to disk before the originals are deleted. They have the
//     modification time and the permissions of the originals.
//  6. No file outside PodLogs is changed, and only regular files are read, whatever links
//     a pod has created in PodLogs.
//  7. If every log exists and there is nothing to rotate, a pass makes one list call to the
//     runtime and one lstat system call for each container. For each new container, it makes
//     a few more system calls, and one ContainerStatus call if the path of the log is unknown.
//
// # Goroutines and locking
//
// New starts nothing. A pass uses up to Workers goroutines, which end before it returns.
// Passes run one at a time. A log whose rotation fails is retried after a back-off, which
// doubles from Interval (10 s by default) up to 5 min. Between renaming a log and
// reopening it in the runtime, a rotation does not stop if the context is done.
// CallTimeout is real time even with a fake clock.
//
// # Differences from the kubelet
//
//   - The kubelet requests a container's status in each pass, and does nothing without it;
//     ours requests it once for each container.
//   - The kubelet retries a failed rotation in each pass; ours retries it after 10 s,
//     20 s, and so on up to 5 min.
//   - In the kubelet a failed compression prevents the rotation, so that the log grows
//     as long as the disk is full; ours rotates the log anyway.
//   - Here the names of rotated files sort in the order of rotation, even after two rotations
//     within a second or after the clock was set back; in the kubelet one file replaces the
//     other, or the newest file is removed as the oldest.
//   - If the runtime reports a failure to reopen a log but has created a new file, the
//     kubelet replaces the new file with the old file, and lines are lost; ours keeps both
//     files.
//   - The kubelet compresses and removes every file whose name starts with the name of the
//     log; ours compresses and removes only files whose names also end in a time.
//   - The kubelet follows a log that is a symbolic link; ours ignores everything that
//     is not a regular file.
//   - The kubelet rotates logs in any place; ours ignores logs that are not below
//     PodLogs.
//   - If a rotation was interrupted before the runtime reopened the log, ours reopens it
//     in a later pass; in the kubelet the container writes to the rotated file until that
//     file is compressed.
//   - If a crash leaves the name of a rotated file as a second hard link to the log, ours
//     removes this link; the kubelet compresses the file, and the lines of the log are
//     duplicated.
//   - Ours syncs compressed files to disk before it deletes the originals; the kubelet
//     does not sync them.
//   - If calls to the runtime about a container hang, they delay our passes by
//     CallTimeout each. Because of the back-off, they delay fewer and fewer passes; the
//     kubelet has no back-off.
//   - [ParseMaxSize] refuses a maximum size of 0, with which the kubelet rotates in
//     every pass.
//
// # Testing your code with it
//
// Call Rotate instead of Run, with PodLogs in a temporary folder and a fake clock. The
// node of package fakecri writes logs there and reopens them.
package logrotate
