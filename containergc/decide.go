package containergc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is what [Decide] decides on. Nothing of it is modified.
type Input struct {
	// Now is the time.
	Now time.Time
	// Snapshot is what there is in the runtime. A container that has ended and has
	// no FinishedAt counts as ended now.
	Snapshot Snapshot
	// Folders and Links are the logs there are.
	Folders []LogFolder
	Links   []LogLink
	// Policy says what goes.
	Policy Policy
	// AllUnused makes all goes of a pod that has ended, as for
	// [Manager.DeleteAllUnusedContainers].
	AllUnused bool
	// Pods knows which pods are gone.
	Pods PodState
	// Owned is [Config].Owned, nil if all is ours.
	Owned func(Object) bool
	// RetryAt says when an object whose removal failed is tried again, by its id;
	// one without an entry at once.
	RetryAt map[string]time.Time
}

// Decide says what goes. For containers, the first of these rules that fits is the
// reason:
//
//  1. What is not ours, belongs to no pod, runs or is in a state that this build
//     does not know stays. What was created and not started stays until a newer
//     attempt is there or nothing of its pod can start any more.
//  2. What ended less than MinAge ago stays and does not count.
//  3. Everything goes of a pod that is gone and, with AllUnused, that has ended.
//  4. MaxPerPodContainer: the newest of each name in each pod stay.
//  5. MaxContainers: each name gets an equal share, at least one; if that is still
//     too much, those that ended first go.
//
// Newest is the highest attempt, whatever clocks said, as long as attempts differ.
//
// A sandbox goes if it is not ready, has no container that stays, and its pod is
// gone or has a newer one, or has ended and AllUnused is set. Logs follow what becomes
// of containers and pods, and links what becomes of logs. At last, what would go but
// failed to go a moment ago stays until it is tried again, and with a container its
// sandbox and its pod's logs.
func Decide(in Input) Plan {
	d := &decider{
		Input: in, pods: map[types.UID]*pod{},
		usedBoxes: map[string]bool{}, usedLogs: map[logKey]bool{}, goneLogs: map[string]types.UID{},
	}
	d.decideContainers()
	d.decideSandboxes()
	d.decideFolders()
	d.decideLinks()
	return Plan{At: in.Now, Decisions: d.decisions}
}

// decider is a decision in the making.
type decider struct {
	Input
	decisions []Decision // of containers, then of sandboxes, then of logs
	pods      map[types.UID]*pod
	usedBoxes map[string]bool      // IDs of sandboxes with a container that stays
	usedLogs  map[logKey]bool      // logs of containers that stay
	goneLogs  map[string]types.UID // files and folders that are removed, by path
}

// pod is what concerns all objects of one pod.
type pod struct {
	uid           types.UID
	gone, ended   bool // as Input.Pods says
	foreign       bool // an object of it is not ours
	hasContainers bool // one stays
	hasSandboxes  bool // one stays
	units         map[string]*unit
	newestSandbox *Sandbox
}

// unit is the containers of one name in one pod.
type unit struct {
	pod    *pod
	newest *Container   // of any state
	dead   []*candidate // those that may go, the newest first
}

// candidate is a container on which the decision is not made yet.
type candidate struct {
	Decision
	unit *unit
	end  int64 // when it ended in Unix nanoseconds, never after a newer one of its unit
}

func (c *candidate) remove(why Reason) { c.Remove, c.Reason = true, why }

// newestFirst compares two containers of one unit. Attempts count first because clocks
// step back (kubernetes#134153).
func newestFirst(a, b *Container) int {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

// pod returns the pod with a UID, empty for objects that belong to no pod.
func (d *decider) pod(uid types.UID) *pod {
	p := d.pods[uid]
	if p == nil {
		p = &pod{uid: uid, units: map[string]*unit{}}
		if uid != "" {
			p.gone, p.ended = d.Pods.ShouldPodContentBeRemoved(uid), d.Pods.ShouldPodRuntimeBeRemoved(uid)
		}
		d.pods[uid] = p
	}
	return p
}

// owned reports whether an object is ours.
func (d *decider) owned(o Object) bool { return d.Owned == nil || d.Owned(o) }

// add completes a decision and reports whether the object goes. An object whose removal
// failed a moment ago stays.
func (d *decider) add(v Decision) bool {
	if at := d.RetryAt[v.ID]; v.Remove && at.After(d.Now) {
		v.Remove, v.Reason, v.Until = false, BackingOff, at
	}
	d.decisions = append(d.decisions, v)
	return v.Remove
}

func (d *decider) decideContainers() {
	candidates, units := d.candidates()
	for _, c := range candidates {
		if d.mayGo(c) {
			c.unit.dead = append(c.unit.dead, c)
		}
	}
	for _, u := range units {
		d.sort(u)
		switch {
		case u.pod.gone:
			u.keepNewest(0, GonePod)
		case d.AllUnused && u.pod.ended:
			u.keepNewest(0, EndedPod)
		default:
			u.keepNewest(limit(d.Policy.MaxPerPodContainer, 1), OverPerPod)
		}
	}
	limitTotal(units, limit(d.Policy.MaxContainers, -1))
	for _, c := range candidates {
		if !d.add(c.Decision) {
			c.unit.pod.hasContainers = true
			d.usedBoxes[c.container.SandboxID] = true
			d.usedLogs[logKey{c.PodUID, c.Name, c.Attempt}] = true
		}
	}
}

// candidates returns all containers, and their units.
func (d *decider) candidates() (all []*candidate, units []*unit) {
	podOf := make(map[string]types.UID, len(d.Snapshot.Sandboxes))
	for i := range d.Snapshot.Sandboxes {
		podOf[d.Snapshot.Sandboxes[i].ID] = d.Snapshot.Sandboxes[i].PodUID
	}
	for i := range d.Snapshot.Containers {
		c := &d.Snapshot.Containers[i]
		p := d.pod(cmp.Or(c.PodUID, podOf[c.SandboxID]))
		u := p.units[c.Name]
		if u == nil {
			u = &unit{pod: p, newest: c}
			p.units[c.Name] = u
			units = append(units, u)
		}
		if newestFirst(c, u.newest) < 0 {
			u.newest = c
		}
		all = append(all, &candidate{unit: u, Decision: Decision{container: c, Reason: WithinLimits, Object: Object{
			Kind: KindContainer, ID: c.ID, PodUID: p.uid, Namespace: c.Namespace, Pod: c.Pod,
			Name: c.Name, Attempt: c.Attempt, Labels: c.Labels,
		}}})
	}
	return all, units
}

// mayGo reports whether a container may go if the limits say so, and sets the reason if
// not.
func (d *decider) mayGo(c *candidate) bool {
	p := c.unit.pod
	switch {
	case p.uid == "":
		c.Reason = NoPod
		return false
	case !d.owned(c.Object):
		p.foreign, c.Reason = true, NotOurs
		return false
	}
	switch c.container.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if c.unused = c.container == c.unit.newest; c.unused && !p.ended {
			c.Reason = MayStart
			return false
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
	default:
		c.Reason = Running
		return false
	}
	if until := d.endOf(c.container).Add(d.Policy.MinAge); until.After(d.Now) {
		c.Reason, c.Until = Young, until
		return false
	}
	return true
}

// endOf returns when a container ended; if it never ran, when it was made. That is never
// later than now, whatever clocks said.
func (d *decider) endOf(c *Container) time.Time {
	end := c.FinishedAt
	if end.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_CREATED {
		end = c.CreatedAt
	}
	if end.IsZero() || end.After(d.Now) {
		return d.Now
	}
	return end
}

// sort puts the newest attempt first and sets when each ended, which was not after a
// newer one did: so no rule about age takes a newer one before an older one, and
// removing the older changes nothing for the newer.
func (d *decider) sort(u *unit) {
	slices.SortFunc(u.dead, func(a, b *candidate) int { return newestFirst(a.container, b.container) })
	end := d.Now.UnixNano()
	for _, c := range u.dead {
		end = min(end, d.endOf(c.container).UnixNano())
		c.end = end
	}
}

// keepNewest removes all but the newest containers of a unit, so many as most says. Negative:
// no limit.
func (u *unit) keepNewest(most int, why Reason) {
	if most < 0 || len(u.dead) <= most {
		return
	}
	for _, c := range u.dead[most:] {
		c.remove(why)
	}
	u.dead = u.dead[:most]
}

// limitTotal applies MaxContainers.
func limitTotal(units []*unit, most int) {
	units = slices.DeleteFunc(units, func(u *unit) bool { return len(u.dead) == 0 })
	if dead := allDead(units); most < 0 || len(dead) <= most {
		return
	}
	for _, u := range units {
		u.keepNewest(max(1, most/len(units)), OverTotal)
	}
	dead := allDead(units)
	slices.SortFunc(dead, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.end, a.end), newestFirst(a.container, b.container))
	})
	for _, c := range dead[min(most, len(dead)):] {
		c.remove(OverTotal)
	}
}

func allDead(units []*unit) (all []*candidate) {
	for _, u := range units {
		all = append(all, u.dead...)
	}
	return all
}

func (d *decider) decideSandboxes() {
	for i := range d.Snapshot.Sandboxes {
		b := &d.Snapshot.Sandboxes[i]
		p := d.pod(b.PodUID)
		if p.newestSandbox == nil || newerSandbox(b, p.newestSandbox) {
			p.newestSandbox = b
		}
	}
	for i := range d.Snapshot.Sandboxes {
		b := &d.Snapshot.Sandboxes[i]
		v := Decision{Object: Object{
			Kind: KindSandbox, ID: b.ID, PodUID: b.PodUID, Namespace: b.Namespace, Pod: b.Pod,
			Attempt: b.Attempt, Labels: b.Labels,
		}}
		v.Remove, v.Reason = d.sandboxGoes(b, v.Object)
		if !d.add(v) {
			d.pod(b.PodUID).hasSandboxes = true
		}
	}
}

func newerSandbox(a, b *Sandbox) bool {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID)) < 0
}

func (d *decider) sandboxGoes(b *Sandbox, o Object) (bool, Reason) {
	p := d.pod(b.PodUID)
	switch {
	case p.uid == "":
		return false, NoPod
	case !d.owned(o):
		p.foreign = true
		return false, NotOurs
	case b.Ready:
		return false, Running
	case d.usedBoxes[b.ID]:
		return false, HasContainers
	case p.gone:
		return true, GonePod
	case d.AllUnused && p.ended:
		return true, EndedPod
	case p.newestSandbox != b:
		return true, NewerSandbox
	default:
		return false, NewestSandbox
	}
}
