package containergc

import "github.com/kubeparts/kubeparts/test/peer/judge"

// causes returns all causes of differences. Where several explain one, it is the first.
func causes() []cause { return append(causesInRuntime(), causesInLogs()...) }

// causesInRuntime are about containers and sandboxes.
func causesInRuntime() []cause {
	return []cause{
		{
			"sources not ready", waitsForSources, judge.Deliberate,
			"While a source of pods is not ready, the kubelet enforces limits and removes sandboxes and dead links; here " +
				"nothing happens, and DeleteAllUnusedContainers returns ErrNotReady.",
		},
		{
			"one snapshot", oneSnapshot, judge.Deliberate,
			"One snapshot serves the whole pass, and nothing happens without it; the kubelet lists again for each step, " +
				"and continues after a list that failed.",
		},
		{
			"no pod", needsPod, judge.Deliberate,
			"The kubelet removes a container or a sandbox without a pod as if its pod were gone; here such a container " +
				"belongs to the pod of its sandbox, and what has no pod is left alone.",
		},
		{
			"created", createdStays, judge.KubeletDefect,
			"The kubelet treats a created container as a dead one; here it stays while its pod may start it.",
		},
		{
			"unknown states", knownStates, judge.Deliberate,
			"A container or a sandbox in a state that this version does not know counts as running; the kubelet removes it.",
		},
		{
			"age from the end", ageFromEnd, judge.KubeletDefect,
			"The age of a dead container counts from its end; in the kubelet it counts from the creation, so that a " +
				"container that ran for long is never young.",
		},
		{
			"attempts", attemptsTell, judge.KubeletDefect,
			"The highest attempt is the newest container or sandbox, and creation times decide only between equal ones; in " +
				"the kubelet they decide alone, although the clock may have been set.",
		},
		{
			"no status", noStatus, judge.Deliberate,
			"The kubelet does not remove a container whose status it cannot get; ours needs no status for that.",
		},
		{
			"back-off", backsOff, judge.Deliberate,
			"The kubelet repeats a failed removal in each pass; here it is repeated after a minute, two, and so on up to 15 minutes.",
		},
		{
			"failures are errors", failuresAreErrors, judge.Deliberate,
			"A failed removal is an error of the pass, and in its event; the kubelet only logs it.",
		},
		{
			"events of reclaims", tellsReclaim, judge.Deliberate,
			"A failed DeleteAllUnusedContainers makes the event ContainerGCFailed, too; the kubelet only logs the failure.",
		},
		{
			"quiet events", quiets, judge.Deliberate,
			"The event ContainerGCFailed is made once in ten minutes; the kubelet makes it in each pass that fails.",
		},
	}
}

// causesInLogs are about logs and links to them.
func causesInLogs() []cause {
	return []cause{
		{
			"logs apart", logsApart, judge.Deliberate,
			"The kubelet removes a container's logs and the link to them before the container, and keeps the logs of a " +
				"container that another client removed; here both go after their container, whoever removed it.",
		},
		{
			"folder last", folderLast, judge.Deliberate,
			"The logs of a pod that is gone or evicted stay until nothing of the pod is left in the runtime; the kubelet " +
				"removes them at once.",
		},
		{
			"folder names", namedFolders, judge.Deliberate,
			"The kubelet takes what follows the last underscore of a log folder's name as a UID; here a folder that is not " +
				"named like a pod's is left alone.",
		},
		{
			"missing folder", missingFolder, judge.Deliberate,
			"If there is no folder of pod logs, the kubelet's pass fails; here there is nothing to do.",
		},
		{
			"links despite", linksDespite, judge.KubeletDefect,
			"If the folder of pod logs cannot be read, the kubelet leaves dead links alone; ours removes them.",
		},
		{
			"unreadable links", readsLinks, judge.Deliberate,
			"If the folder of links cannot be read, the pass fails; the kubelet takes it for empty, and removes no container.",
		},
		{
			"links without a status", snapshotTells, judge.Deliberate,
			"The snapshot tells whether the container of a dead link may write again; the kubelet asks for its status, and " +
				"removes the link of a running container if that fails.",
		},
	}
}
