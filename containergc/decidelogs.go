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

// judgeFolders decides on the folders of pods, and in those of pods that are not
// gone, on the logs of each container.
func (d *decider) judgeFolders() {
	if len(d.Folders) == 0 {
		return
	}
	here := make(map[logKey]bool, len(d.members))
	newest := make(map[logKey]uint32, len(d.units)) // by key without attempt
	for i, n := range d.members {
		c := &d.Snapshot.Containers[i]
		k := logKey{d.pods[n].uid, c.Name, 0}
		if at, ok := newest[k]; !ok || c.Attempt > at {
			newest[k] = c.Attempt
		}
		if !d.decisions[i].Remove {
			k.attempt = c.Attempt
			here[k] = true
		}
	}
	for i := range d.Folders {
		f := &d.Folders[i]
		v := Decision{index: i, Object: Object{
			Kind: KindLogFolder, ID: f.Folder, PodUID: f.UID, Namespace: f.Namespace, Pod: f.Pod,
		}}
		d.folderGoes(&v)
		if d.holdBack(&v); v.Remove {
			d.goneLogs[f.Folder] = f.UID
		}
		d.decisions = append(d.decisions, v)
		if v.Reason == PodIsHere {
			d.judgeAttempts(i, here, newest)
		}
	}
}

func (d *decider) folderGoes(v *Decision) {
	p := &d.pods[d.pod(v.PodUID)]
	switch {
	case p.foreign || !d.owned(v.Object):
		v.Reason = NotOurs
	case !p.gone:
		v.Reason = PodIsHere
	case p.stays || p.inUse:
		v.Reason = StillInRuntime
	default:
		v.Remove, v.Reason = true, GonePod
	}
}

// judgeAttempts decides on the logs of containers of a pod that is not gone. Those of
// attempts that are newer than the snapshot stay. Of a name that the snapshot does not
// have all stay for as long as the pod may start containers: one that ends at once has
// two by the time that an old snapshot is used.
func (d *decider) judgeAttempts(folder int, here map[logKey]bool, newest map[logKey]uint32) {
	f, ended := &d.Folders[folder], d.pods[d.pod(d.Folders[folder].UID)].ended
	order := make([]int, len(f.Attempts)) // by name, the newest first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &f.Attempts[a], &f.Attempts[b]
		return cmp.Or(cmp.Compare(x.Container, y.Container), cmp.Compare(y.Attempt, x.Attempt))
	})
	for _, i := range order {
		a := &f.Attempts[i]
		v := Decision{index: folder, logs: i, Reason: ContainerIsGone, Object: Object{
			Kind: KindLogs, ID: logsID(f, a), PodUID: f.UID, Namespace: f.Namespace, Pod: f.Pod,
			Name: a.Container, Attempt: a.Attempt,
		}}
		at, known := newest[logKey{f.UID, a.Container, 0}]
		switch {
		case here[logKey{f.UID, a.Container, a.Attempt}]:
			v.Reason = ContainerIsHere
		case known && a.Attempt > at, !known && !ended:
			v.Reason = MayBeNew
		default:
			v.Remove = true
		}
		if d.holdBack(&v); v.Remove {
			for _, file := range a.Files {
				d.goneLogs[file] = f.UID
			}
		}
		d.decisions = append(d.decisions, v)
	}
}

func logsID(f *LogFolder, a *AttemptLogs) string {
	if len(a.Files) > 0 {
		return a.Files[0]
	}
	return f.Folder
}

// judgeLinks decides on the links that lead nowhere, and on those to logs that go. That
// of a container which may write again leads nowhere for a moment while its log is
// rotated.
func (d *decider) judgeLinks() {
	if len(d.Links) == 0 {
		return
	}
	byID := make(map[string]int, len(d.members))
	for i := range d.members {
		byID[d.Snapshot.Containers[i].ID] = i
	}
	for i := range d.Links {
		l := &d.Links[i]
		v := Decision{index: -1, Object: Object{
			Kind: KindLogLink, ID: l.Name, Namespace: l.Namespace, Pod: l.Pod, Name: l.Container,
		}}
		n, known := d.containerOf(l, byID)
		if known {
			v.index, v.PodUID = n, d.decisions[n].PodUID
		}
		uid, goes := d.logGoes(l.Log)
		switch {
		case l.Log != "" && !goes:
			continue
		case known && d.decisions[n].Reason == NotOurs, !d.owned(v.Object):
			v.Reason = NotOurs
		case known && !d.decisions[n].Remove && d.Snapshot.Containers[n].State != runtimeapi.ContainerState_CONTAINER_EXITED:
			v.Reason = MayRotate
		case goes:
			v.PodUID, v.Remove, v.Reason = uid, true, LogGoes
		default:
			v.Remove, v.Reason = true, DeadLink
		}
		d.holdBack(&v)
		d.decisions = append(d.decisions, v)
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

// containerOf returns the container of a link. Names of links are cut to the length of
// a file's name, which may leave the first part of the ID only.
func (d *decider) containerOf(l *LogLink, byID map[string]int) (n int, known bool) {
	if n, known = byID[l.ContainerID]; known || len(l.ContainerID) < shortestID {
		return n, known
	}
	for i := range d.members {
		if !strings.HasPrefix(d.Snapshot.Containers[i].ID, l.ContainerID) {
			continue
		}
		if known {
			return -1, false
		}
		n, known = i, true
	}
	return n, known
}
