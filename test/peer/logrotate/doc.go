// Package logrotate compares the rotation of container logs with the kubelet's.
//
// Both sides rotate real files of the same fake runtime, which holds each log open and
// goes on writing to it under whatever name. Compared after each pass are all files,
// with every line, their permissions and whether they are compressed, the calls that
// reopen a log, and whether containers could be listed.
//
// Worlds have logs of sizes around the limit, rotated files of all forms, files of
// others beside them, folders in their place, logs that are links or outside of the
// folder of logs, that vanish, whose containers end; reopening that fails before or
// after the new file was made, or makes none; statuses and lists that fail; clocks that
// are set, several rotations in a second, and restarts.
//
// # Models
//
// A model plays the whole world as the kubelet does, and ours with its differences
// switched on one by one: see [traits]. A difference is explained if the models have
// both values, and its rule is that of the trait which makes the difference.
//
// # Not compared
//
// Full disks, crashes within a rotation, and calls that hang: for these the tests of the
// package stand. Times of files, which ours keeps. Config.Running and Config.Owned, which
// the kubelet does not have.
package logrotate
