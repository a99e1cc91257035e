package logrotate

import "github.com/kubeparts/kubeparts/test/peer/judge"

// causes returns all causes of differences. If several of them explain a difference, the
// first one counts.
func causes() []cause {
	return []cause{
		{
			"one status request per container", statusOnce, judge.Deliberate,
			"The kubelet requests a container's status in each pass, and does nothing without it; ours requests it once for each container.",
		},
		{
			"back-off after failed rotations", backsOff, judge.Deliberate,
			"The kubelet retries a failed rotation in each pass; ours retries it after 10 s, 20 s, and so on up to 5 min.",
		},
		{
			"rotation despite failed compression", compressGoesOn, judge.KubeletDefect,
			"In the kubelet a failed compression prevents the rotation, so that the log grows as long as the disk is full; ours rotates the log anyway.",
		},
		{
			"unique and ordered rotated file names", newNames, judge.KubeletDefect,
			"Here the names of rotated files sort in the order of rotation, even after two rotations within a " +
				"second or after the clock was set back; in the kubelet one file replaces the other, or the " +
				"newest file is removed as the oldest.",
		},
		{
			"new file despite failed ReopenContainerLog", keepsBoth, judge.KubeletDefect,
			"If the runtime reports a failure to reopen a log but has created a new file, the kubelet replaces the new file with the old file, and lines are lost; ours keeps both files.",
		},
		{
			"other files with the log's prefix", ownNames, judge.KubeletDefect,
			"The kubelet compresses and removes every file whose name starts with the name of the log; ours compresses and removes only files whose names also end in a time.",
		},
		{
			"logs that are not regular files", regularOnly, judge.Deliberate,
			"The kubelet follows a log that is a symbolic link; ours ignores everything that is not a regular file.",
		},
		{
			"logs outside the pod log directory", insideOnly, judge.Deliberate,
			"The kubelet rotates logs in any place; ours ignores logs that are not below PodLogs.",
		},
		{
			"hard link left by a crash", oneName, judge.Deliberate,
			"If a crash leaves the name of a rotated file as a second hard link to the log, ours removes this link; the kubelet compresses the file, and the lines of the log are duplicated.",
		},
		{
			"rotation interrupted before ReopenContainerLog", finishesHalf, judge.Deliberate,
			"If a rotation was interrupted before the runtime reopened the log, ours reopens it in a later pass; in the kubelet the container writes to the rotated file until that file is compressed.",
		},
	}
}
