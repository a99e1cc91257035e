package containergc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is the input of [PlanRemovals], which does not modify it.
type Input struct {
	// Now is the current time.
	Now time.Time
	// Snapshot has the containers and sandboxes in the runtime. An exited container
	// without FinishedAt counts as exited now.
	Snapshot Snapshot
	// Folders and Links are the existing log folders and links.
	Folders []LogFolder
	Links   []LogLink
	// Policy limits how many dead containers are kept.
	Policy Policy
	// AllUnused also removes all dead containers and unused sandboxes of terminated pods,
	// as [Manager.DeleteAllUnusedContainers] does.
	AllUnused bool
	// Pods reports which pods have terminated or were deleted.
	Pods PodState
	// Owned is [Config].Owned; nil means that all objects are owned.
	Owned func(Object) bool
	// RetryAt contains, by object id, when a failed removal may be retried. An object without an
	// entry may be removed at once.
	RetryAt map[string]time.Time
}

// PlanRemovals decides which objects are removed. For a container, the first of these
// rules that applies decides:
//
//  1. A container is kept if it is not owned, belongs to no pod, runs, or is in a state
//     that this build does not know. A container that was created and not started is kept
//     until a newer attempt exists or its pod has terminated.
//  2. A container that exited less than MinAge ago is kept and does not count towards the
//     limits.
//  3. All containers of a deleted or evicted pod are removed. If AllUnused is set, all
//     containers of a terminated pod are removed too.
//  4. MaxPerPodContainer: the newest containers of each name in each pod are kept, up to
//     this number.
//  5. MaxContainers: if more dead containers remain than this number, each name in each
//     pod keeps an equal share of this number, but at least one container. If too many
//     containers still remain, the containers that exited first are removed.
//
// The newest container is the one with the highest attempt, whatever the clocks showed;
// creation times matter only for equal attempts.
//
// A sandbox that is not owned or belongs to no pod is kept. Any other sandbox is removed if it is
// not ready, none of its containers is kept, and one of these conditions holds:
//
//   - Its pod was deleted or evicted.
//   - Its pod has a newer sandbox.
//   - Its pod has terminated and AllUnused is set.
//
// Logs are removed with their container or pod, and links with their log. Finally, an object
// whose removal failed recently is kept until its time in RetryAt. If the object is a container,
// its sandbox, its logs and its pod's log folder are kept as well.
func PlanRemovals(in Input) Plan {
	d := &decider{
		Input: in, pods: map[types.UID]*pod{},
		usedSandboxes: map[string]bool{}, usedLogs: map[logKey]bool{}, removedLogs: map[string]types.UID{},
	}
	d.decideContainers()
	d.decideSandboxes()
	d.decideFolders()
	d.decideLinks()
	return Plan{At: in.Now, Decisions: d.decisions}
}

// decider is the working state of PlanRemovals.
type decider struct {
	Input
	decisions     []Decision // for containers, then for sandboxes, then for logs
	pods          map[types.UID]*pod
	usedSandboxes map[string]bool      // IDs of sandboxes with a container that is kept
	usedLogs      map[logKey]bool      // logs of containers that are kept
	removedLogs   map[string]types.UID // files and folders that are removed, by path
}

// pod has the facts that are common to all objects of one pod.
type pod struct {
	uid                 types.UID
	deleted, terminated bool // as Input.Pods reports
	foreign             bool // has an object that is not owned
	hasContainers       bool // a container is kept
	hasSandboxes        bool // a sandbox is kept
	units               map[string]*unit
	newestSandbox       *Sandbox
}

// unit has the containers of one name in one pod, like the kubelet's evict unit.
type unit struct {
	pod    *pod
	newest *Container   // in any state
	dead   []*candidate // containers that may be removed, the newest first
}

// candidate is a container with its preliminary decision.
type candidate struct {
	Decision
	unit      *unit
	exitNanos int64 // exit time in Unix nanoseconds, never after the exit time of a newer container of the unit
}

func (c *candidate) remove(why Reason) { c.Remove, c.Reason = true, why }

// newestFirst compares two containers of one unit. Attempts are compared first because
// clocks may be set back (kubernetes#134153).
func newestFirst(a, b *Container) int {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

// pod returns the pod with a UID. Objects that belong to no pod share the pod with the
// empty UID.
func (d *decider) pod(uid types.UID) *pod {
	p := d.pods[uid]
	if p == nil {
		p = &pod{uid: uid, units: map[string]*unit{}}
		if uid != "" {
			p.deleted, p.terminated = d.Pods.ShouldPodContentBeRemoved(uid), d.Pods.ShouldPodRuntimeBeRemoved(uid)
		}
		d.pods[uid] = p
	}
	return p
}

// owned reports whether an object is owned by this agent.
func (d *decider) owned(o Object) bool { return d.Owned == nil || d.Owned(o) }

// add completes a decision and reports whether the object is removed. An object whose
// removal failed recently is kept.
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
		if d.mayRemove(c) {
			c.unit.dead = append(c.unit.dead, c)
		}
	}
	for _, u := range units {
		d.sort(u)
		switch {
		case u.pod.deleted:
			u.keepNewest(0, PodDeleted)
		case d.AllUnused && u.pod.terminated:
			u.keepNewest(0, PodTerminated)
		default:
			u.keepNewest(limit(d.Policy.MaxPerPodContainer, 1), OverPerPod)
		}
	}
	limitTotal(units, limit(d.Policy.MaxContainers, -1))
	for _, c := range candidates {
		if !d.add(c.Decision) {
			c.unit.pod.hasContainers = true
			d.usedSandboxes[c.container.SandboxID] = true
			d.usedLogs[logKey{c.PodUID, c.Name, c.Attempt}] = true
		}
	}
}

// candidates returns all containers and their units.
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

// mayRemove reports whether rules 3 to 5 of [PlanRemovals] apply to a container. If not, it
// sets the reason.
func (d *decider) mayRemove(c *candidate) bool {
	p := c.unit.pod
	switch {
	case p.uid == "":
		c.Reason = NoPod
		return false
	case !d.owned(c.Object):
		p.foreign, c.Reason = true, NotOwned
		return false
	}
	switch c.container.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if c.unused = c.container == c.unit.newest; c.unused && !p.terminated {
			c.Reason = MayStart
			return false
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
	default:
		c.Reason = Running
		return false
	}
	if until := d.exitTime(c.container).Add(d.Policy.MinAge); until.After(d.Now) {
		c.Reason, c.Until = Young, until
		return false
	}
	return true
}

// exitTime returns when a container exited or, if it never ran, when it was created. If
// this time is unknown or later than now, it returns now.
func (d *decider) exitTime(c *Container) time.Time {
	end := c.FinishedAt
	if end.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_CREATED {
		end = c.CreatedAt
	}
	if end.IsZero() || end.After(d.Now) {
		return d.Now
	}
	return end
}

// sort sorts the unit by attempt, the newest first, and sets the exit times so that no
// container exited after a newer container. As a result, no rule based on age removes a
// newer container before an older container.
func (d *decider) sort(u *unit) {
	slices.SortFunc(u.dead, func(a, b *candidate) int { return newestFirst(a.container, b.container) })
	end := d.Now.UnixNano()
	for _, c := range u.dead {
		end = min(end, d.exitTime(c.container).UnixNano())
		c.exitNanos = end
	}
}

// keepNewest keeps the newest dead containers of the unit, up to the given number, and decides to
// remove the remaining dead containers. If the number is negative, it keeps all containers.
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
		return cmp.Or(cmp.Compare(b.exitNanos, a.exitNanos), newestFirst(a.container, b.container))
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
		v.Remove, v.Reason = d.removesSandbox(b, v.Object)
		if !d.add(v) {
			d.pod(b.PodUID).hasSandboxes = true
		}
	}
}

func newerSandbox(a, b *Sandbox) bool {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID)) < 0
}

func (d *decider) removesSandbox(b *Sandbox, o Object) (bool, Reason) {
	p := d.pod(b.PodUID)
	switch {
	case p.uid == "":
		return false, NoPod
	case !d.owned(o):
		p.foreign = true
		return false, NotOwned
	case b.Ready:
		return false, Running
	case d.usedSandboxes[b.ID]:
		return false, HasContainers
	case p.deleted:
		return true, PodDeleted
	case d.AllUnused && p.terminated:
		return true, PodTerminated
	case p.newestSandbox != b:
		return true, NewerSandbox
	default:
		return false, NewestSandbox
	}
}
