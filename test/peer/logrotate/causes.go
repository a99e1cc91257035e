package logrotate

import "github.com/kubeparts/kubeparts/test/peer/judge"

// causes returns all causes of differences. Where several explain one, it is the first.
func causes() []cause {
	return []cause{
		{
			"status once", statusOnce, judge.Deliberate,
			"The kubelet asks for a container's status in each pass, and does nothing without it; ours asks once in a container's life.",
		},
		{
			"back-off", backsOff, judge.Deliberate,
			"The kubelet tries to rotate a log again in each pass; here a log that failed waits 10 s, 20 s, and so on up to 5 min.",
		},
		{
			"compression", compressGoesOn, judge.KubeletDefect,
			"In the kubelet a failed compression keeps the log from being rotated, so that it grows for as long as the disk is full; here the log is rotated all the same.",
		},
		{
			"names", newNames, judge.KubeletDefect,
			"Two rotations within a second, or after the clock has stepped back, have different names in the order of time; " +
				"in the kubelet one log replaces the other, or the newest is removed as the oldest.",
		},
		{
			"new file", keepsBoth, judge.KubeletDefect,
			"If the runtime reports a failure to reopen a log but has made a new file, the kubelet replaces that by the old one, and lines are lost; ours keeps both.",
		},
		{
			"own names", ownNames, judge.KubeletDefect,
			"The kubelet compresses and removes every file whose name begins with that of the log; ours only those whose names end in a time.",
		},
		{
			"links", regularOnly, judge.Deliberate,
			"The kubelet follows a log that is a symbolic link; ours leaves alone what is not a regular file.",
		},
		{
			"outside", insideOnly, judge.Deliberate,
			"The kubelet rotates a log wherever it is; ours leaves alone what is not below PodLogs.",
		},
		{
			"one name", oneName, judge.Deliberate,
			"A rotated log that is the log itself by another name, which a crash may leave, loses that name; the kubelet compresses it, and its lines are there twice.",
		},
		{
			"half rotations", finishesHalf, judge.Deliberate,
			"If a rotation ended before the runtime knew of it, ours tells the runtime in a later pass; in the kubelet the container writes to the rotated file until that is compressed.",
		},
	}
}
