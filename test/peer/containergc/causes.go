package containergc

import "github.com/kubeparts/kubeparts/test/peer/judge"

// causes returns all causes of differences. If several of them explain a difference, the
// first one counts.
func causes() []cause { return append(causesInRuntime(), causesInLogs()...) }

// causesInRuntime are about containers and sandboxes.
func causesInRuntime() []cause {
	return []cause{
		{
			"pod sources not ready", waitsForSources, judge.Deliberate,
			"While a pod source is not ready, the kubelet enforces limits and removes sandboxes and dead " +
				"links; ours does nothing, and DeleteAllUnusedContainers returns ErrNotReady.",
		},
		{
			"one runtime snapshot per pass", oneSnapshot, judge.Deliberate,
			"Ours uses one snapshot for the whole pass, and does nothing without it; the kubelet lists again " +
				"for each step, and continues after a list that failed.",
		},
		{
			"containers and sandboxes without a pod", needsPod, judge.Deliberate,
			"The kubelet removes a container or a sandbox without a pod UID as if its pod did not exist any " +
				"more; here a container without a pod UID belongs to the pod of its sandbox, and objects that " +
				"belong to no pod are kept.",
		},
		{
			"containers created but not started", createdStays, judge.KubeletDefect,
			"The kubelet treats a created container as dead; ours keeps the container while its pod may still start it.",
		},
		{
			"containers and sandboxes in unknown states", knownStates, judge.Deliberate,
			"Here a container or a sandbox in a state that this version does not know counts as running; the kubelet removes it.",
		},
		{
			"minimum age counted from the exit", ageFromEnd, judge.KubeletDefect,
			"Here the age of a dead container counts from its exit; in the kubelet it counts from its creation, " +
				"so that a container that ran for a long time is never young.",
		},
		{
			"newest instance by attempt", attemptsTell, judge.KubeletDefect,
			"Here the container or sandbox with the highest attempt is the newest, and creation times matter only " +
				"for equal attempts; the kubelet compares only creation times, although the clock may have been " +
				"set.",
		},
		{
			"removal without a container status", noStatus, judge.Deliberate,
			"The kubelet does not remove a container whose status it cannot get; ours needs no status to remove a container.",
		},
		{
			"back-off after failed removals", backsOff, judge.Deliberate,
			"The kubelet retries a failed removal in each pass; ours retries it after 1 min, 2 min, and so on up to 15 min.",
		},
		{
			"failed removals reported as errors", failuresAreErrors, judge.Deliberate,
			"Here a failed removal is part of the error of the pass and of its event; the kubelet only logs it.",
		},
		{
			"event after failed DeleteAllUnusedContainers", tellsReclaim, judge.Deliberate,
			"Here a failed DeleteAllUnusedContainers also causes the event ContainerGCFailed; the kubelet only logs the failure.",
		},
		{
			"rate-limited ContainerGCFailed events", quiets, judge.Deliberate,
			"As long as all passes fail, ours records the event ContainerGCFailed at most once in ten minutes; the kubelet records it in each pass that fails.",
		},
	}
}

// causesInLogs are about logs and links to them.
func causesInLogs() []cause {
	return []cause{
		{
			"logs removed after their container", logsApart, judge.Deliberate,
			"The kubelet removes a container's logs and the link to them before the container, and keeps the " +
				"logs of a container that another client removed; ours removes both after the container, " +
				"whichever client removed it.",
		},
		{
			"pod log directory removed last", folderLast, judge.Deliberate,
			"Ours keeps the logs of a pod that was deleted or evicted until nothing of the pod is left in the " +
				"runtime; the kubelet removes them at once.",
		},
		{
			"log directories not named after pods", namedFolders, judge.Deliberate,
			"The kubelet uses what follows the last underscore of a log folder's name as a UID; ours ignores " +
				"folders whose names are not those of pods.",
		},
		{
			"missing pod log directory", missingFolder, judge.Deliberate,
			"If the folder of pod logs does not exist, the kubelet's pass fails; ours treats the folder as empty.",
		},
		{
			"dead symlinks despite unreadable pod logs", linksDespite, judge.KubeletDefect,
			"If the folder of pod logs cannot be read, the kubelet keeps dead links; ours removes them.",
		},
		{
			"unreadable directory of log symlinks", readsLinks, judge.Deliberate,
			"If the folder of links cannot be read, ours still removes containers, sandboxes and logs, and the " +
				"pass returns an error; the kubelet removes no container, because it cannot remove the container's " +
				"link first.",
		},
		{
			"dead symlinks without a container status", snapshotTells, judge.Deliberate,
			"Ours uses the snapshot to find out whether the container of a dead link may write again; the " +
				"kubelet requests the container's status, and if this request fails, it removes the link even if " +
				"the container is running.",
		},
	}
}
