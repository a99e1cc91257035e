package containergc

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logKey identifies the logs of one container.
type logKey struct {
	uid     types.UID
	name    string
	attempt uint32
}

// decideFolders decides on the log folders of pods, and on the logs of each container of
// pods that still exist.
func (d *decider) decideFolders() {
	for i := range d.Folders {
		f := &d.Folders[i]
		v := Decision{Object: Object{
			Kind: KindLogFolder, ID: f.Folder, PodUID: f.UID, Namespace: f.Namespace, Pod: f.Pod,
		}}
		switch p := d.pod(f.UID); {
		case p.foreign || !d.owned(v.Object):
			v.Reason = NotOwned
		case !p.deleted:
			v.Reason = PodExists
		case p.hasContainers || p.hasSandboxes:
			v.Reason = StillInRuntime
		default:
			v.Remove, v.Reason = true, PodDeleted
		}
		if d.add(v) {
			d.removedLogs[f.Folder] = f.UID
		}
		if v.Reason == PodExists {
			d.decideLogs(f)
		}
	}
}

// decideLogs decides on the logs of the containers of a pod that still exists. Logs of attempts
// that are newer than the newest attempt in the snapshot are kept. If the snapshot has no container
// with the container name of a log, the log is kept until the pod has terminated: since the
// snapshot, the pod may have started containers with this name.
func (d *decider) decideLogs(f *LogFolder) {
	p := d.pod(f.UID)
	attempts := slices.Clone(f.Attempts) // by name, the newest first
	slices.SortFunc(attempts, func(a, b AttemptLogs) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(b.Attempt, a.Attempt))
	})
	for _, a := range attempts {
		v := Decision{files: a.Files, Object: Object{
			Kind: KindLogs, ID: f.Folder, PodUID: f.UID, Namespace: f.Namespace, Pod: f.Pod,
			Name: a.Container, Attempt: a.Attempt,
		}}
		if len(a.Files) > 0 {
			v.ID = a.Files[0]
		}
		switch u := p.units[a.Container]; {
		case d.usedLogs[logKey{f.UID, a.Container, a.Attempt}]:
			v.Reason = ContainerExists
		case u != nil && a.Attempt > u.newest.Attempt, u == nil && !p.terminated:
			v.Reason = MayBeNew
		default:
			v.Remove, v.Reason = true, ContainerRemoved
		}
		if d.add(v) {
			for _, file := range a.Files {
				d.removedLogs[file] = f.UID
			}
		}
	}
}

// decideLinks decides on links without a target and on links to logs that are removed. It
// keeps the link of a container that may write again: while the log is rotated, such a
// link has no target for a moment.
func (d *decider) decideLinks() {
	byID := make(map[string]*Decision, len(d.Snapshot.Containers))
	for i := range d.Snapshot.Containers {
		byID[d.decisions[i].ID] = &d.decisions[i]
	}
	for i := range d.Links {
		l := &d.Links[i]
		uid, removed := d.isLogRemoved(l.Log)
		if l.Log != "" && !removed {
			continue
		}
		v := Decision{Object: Object{
			Kind: KindLogLink, ID: l.Name, Namespace: l.Namespace, Pod: l.Pod, Name: l.Container,
		}}
		c := linkedContainer(l, byID)
		if c != nil {
			v.container, v.PodUID = c.container, c.PodUID
		}
		switch {
		case c != nil && c.Reason == NotOwned, !d.owned(v.Object):
			v.Reason = NotOwned
		case c != nil && !c.Remove && c.container.State != runtimeapi.ContainerState_CONTAINER_EXITED:
			v.Reason = MayRotate
		case removed:
			v.PodUID, v.Remove, v.Reason = uid, true, LogRemoved
		default:
			v.Remove, v.Reason = true, DeadLink
		}
		d.add(v)
	}
}

// isLogRemoved reports whether a log is removed by the plan, and returns the UID of the
// log's pod.
func (d *decider) isLogRemoved(file string) (uid types.UID, removed bool) {
	if uid, removed = d.removedLogs[file]; !removed {
		folder, _, _ := strings.Cut(file, "/")
		uid, removed = d.removedLogs[folder]
	}
	return uid, removed
}

// minIDLength is how many characters of an ID are needed to find its container, as in the
// kubelet.
const minIDLength = 6

// linkedContainer returns the decision on the container of a link, or nil if the container
// is unknown or not unique. Link names are truncated to the maximum length of a file name,
// which may leave only the first part of the ID.
func linkedContainer(l *LogLink, byID map[string]*Decision) (found *Decision) {
	if c := byID[l.ContainerID]; c != nil || len(l.ContainerID) < minIDLength {
		return c
	}
	for id, c := range byID {
		if !strings.HasPrefix(id, l.ContainerID) {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}
