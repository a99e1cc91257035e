package containergc

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logKey names the logs of one container.
type logKey struct {
	uid     types.UID
	name    string
	attempt uint32
}

// decideFolders decides on the folders of pods, and in those of pods that are not
// gone, on the logs of each container.
func (d *decider) decideFolders() {
	for i := range d.Folders {
		f := &d.Folders[i]
		v := Decision{Object: Object{
			Kind: KindLogFolder, ID: f.Folder, PodUID: f.UID, Namespace: f.Namespace, Pod: f.Pod,
		}}
		switch p := d.pod(f.UID); {
		case p.foreign || !d.owned(v.Object):
			v.Reason = NotOurs
		case !p.gone:
			v.Reason = PodIsHere
		case p.hasContainers || p.hasSandboxes:
			v.Reason = StillInRuntime
		default:
			v.Remove, v.Reason = true, GonePod
		}
		if d.add(v) {
			d.goneLogs[f.Folder] = f.UID
		}
		if v.Reason == PodIsHere {
			d.decideLogs(f)
		}
	}
}

// decideLogs decides on the logs of containers of a pod that is not gone. Those of
// attempts that are newer than the snapshot stay. Of a name that the snapshot does not
// have all stay for as long as the pod may start containers: one that ends at once has
// two by the time that an old snapshot is used.
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
			v.Reason = ContainerIsHere
		case u != nil && a.Attempt > u.newest.Attempt, u == nil && !p.ended:
			v.Reason = MayBeNew
		default:
			v.Remove, v.Reason = true, ContainerIsGone
		}
		if d.add(v) {
			for _, file := range a.Files {
				d.goneLogs[file] = f.UID
			}
		}
	}
}

// decideLinks decides on the links that lead nowhere, and on those to logs that go. That
// of a container which may write again leads nowhere for a moment while its log is
// rotated.
func (d *decider) decideLinks() {
	byID := make(map[string]*Decision, len(d.Snapshot.Containers))
	for i := range d.Snapshot.Containers {
		byID[d.decisions[i].ID] = &d.decisions[i]
	}
	for i := range d.Links {
		l := &d.Links[i]
		uid, goes := d.logGoes(l.Log)
		if l.Log != "" && !goes {
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
		case c != nil && c.Reason == NotOurs, !d.owned(v.Object):
			v.Reason = NotOurs
		case c != nil && !c.Remove && c.container.State != runtimeapi.ContainerState_CONTAINER_EXITED:
			v.Reason = MayRotate
		case goes:
			v.PodUID, v.Remove, v.Reason = uid, true, LogGoes
		default:
			v.Remove, v.Reason = true, DeadLink
		}
		d.add(v)
	}
}

// logGoes reports whether a log is removed, and of which pod it is.
func (d *decider) logGoes(file string) (uid types.UID, goes bool) {
	if uid, goes = d.goneLogs[file]; !goes {
		folder, _, _ := strings.Cut(file, "/")
		uid, goes = d.goneLogs[folder]
	}
	return uid, goes
}

// shortestID is how many characters of its ID a container is found by, as in the kubelet.
const shortestID = 6

// linkedContainer returns the container of a link, nil if it is not known. Names of links
// are cut to the length of a file's name, which may leave the first part of the ID only.
func linkedContainer(l *LogLink, byID map[string]*Decision) (found *Decision) {
	if c := byID[l.ContainerID]; c != nil || len(l.ContainerID) < shortestID {
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
