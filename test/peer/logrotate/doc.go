// Package logrotate compares the rotation of container logs with the kubelet's.
//
// Both sides rotate real files of the same fake runtime. The runtime keeps each log open and
// continues to write to it, even after a rename. After each pass, the test compares all files
// with every line, their permissions and whether they are compressed; the calls that reopen a
// log; and whether listing the containers succeeded.
//
// Worlds have logs of sizes around the limit, rotated files with all forms of names,
// unrelated files and directories next to them, logs that are symbolic links or outside of
// the log directory, logs that vanish, and containers that end. Reopening fails before or
// after the runtime has created the new file, or the runtime creates no file. Status and list
// calls fail, clocks are set, several rotations fall into one second, and the agent restarts.
//
// # Models
//
// A model plays the whole world. It can play as the kubelet, as our package, or as a mixture
// that has only some of our differences from the kubelet: see [judge.Traits]. A difference is
// explained if the models of both sides have the values of these sides. Its rule is the rule
// of the trait that causes it.
//
// # Not compared
//
//   - Full disks, crashes within a rotation, and calls that hang. The tests of package
//     logrotate cover them.
//   - Times of files, which our package preserves.
//   - Config.Running and Config.Owned, which the kubelet does not have.
package logrotate
