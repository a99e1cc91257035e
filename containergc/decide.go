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
	d := newDecider(in)
	d.judgeContainers()
	d.judgeSandboxes()
	d.judgeFolders()
	d.judgeLinks()
	return Plan{At: in.Now, Decisions: d.decisions}
}

// decider is a decision in the making.
type decider struct {
	Input
	decisions []Decision // of containers, then of sandboxes, then of logs
	pods      []pod
	podOf     map[types.UID]int
	boxOf     map[string]int // by id, nil if nobody needs it
	boxPods   []int          // each sandbox's pod
	members   []int          // each container's pod
	ends      []int64        // of each container, in Unix nanoseconds, never after that of a newer attempt
	units     []unit
	goneLogs  map[string]types.UID // files and folders that are removed, by path
}

// pod is what concerns all objects of one pod.
type pod struct {
	uid types.UID
	// gone and ended are what Input.Pods says.
	gone, ended bool
	// foreign says that something of it is not ours, stays that some container is
	// not to be removed, inUse that a sandbox is not.
	foreign, stays, inUse bool
	newestBox             int // in the snapshot, -1 if there is none
	firstUnit             int // -1 if there is none
}

// unit is the dead containers of one name in one pod that can go.
type unit struct {
	pod    int
	name   string
	size   int   // how many containers of any state have the name
	newest int   // of those, in the snapshot
	dead   []int // in the snapshot, the newest first
	next   int   // another of the pod, -1 if there is none
}

// newestFirst compares two containers of one unit. Attempts count first because clocks
// step back (kubernetes#134153).
func newestFirst(a, b *Container) int {
	if a.Attempt != b.Attempt {
		return cmp.Compare(b.Attempt, a.Attempt)
	}
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

func newDecider(in Input) *decider {
	s := &in.Snapshot
	d := &decider{
		Input:     in,
		decisions: make([]Decision, 0, len(s.Containers)+len(s.Sandboxes)+len(in.Folders)+len(in.Links)),
		pods:      make([]pod, 0, len(s.Sandboxes)),
		units:     make([]unit, 0, len(s.Containers)/2),
		podOf:     make(map[types.UID]int, len(s.Sandboxes)),
		boxPods:   make([]int, len(s.Sandboxes)),
		members:   make([]int, len(s.Containers)),
		ends:      make([]int64, len(s.Containers)),
		goneLogs:  map[string]types.UID{},
	}
	if slices.ContainsFunc(s.Sandboxes, func(b Sandbox) bool { return !b.Ready }) ||
		slices.ContainsFunc(s.Containers, func(c Container) bool { return c.PodUID == "" }) {
		d.boxOf = make(map[string]int, len(s.Sandboxes))
	}
	for i := range s.Sandboxes {
		b := &s.Sandboxes[i]
		n := d.pod(b.PodUID)
		d.boxPods[i] = n
		if d.boxOf != nil {
			d.boxOf[b.ID] = i
		}
		if p := &d.pods[n]; p.newestBox < 0 || newerSandbox(b, &s.Sandboxes[p.newestBox]) {
			p.newestBox = i
		}
	}
	for i := range s.Containers {
		d.members[i] = d.podOfContainer(i)
	}
	return d
}

func (d *decider) podOfContainer(i int) int {
	c := &d.Snapshot.Containers[i]
	if c.PodUID == "" {
		if box, ok := d.boxOf[c.SandboxID]; ok {
			return d.boxPods[box]
		}
	} else if i > 0 && c.PodUID == d.Snapshot.Containers[i-1].PodUID {
		return d.members[i-1]
	}
	return d.pod(c.PodUID)
}

// pod returns the index of a pod.
func (d *decider) pod(uid types.UID) int {
	n, ok := d.podOf[uid]
	if !ok {
		n = len(d.pods)
		d.podOf[uid] = n
		p := pod{uid: uid, newestBox: -1, firstUnit: -1}
		if uid != "" {
			p.gone, p.ended = d.Pods.ShouldPodContentBeRemoved(uid), d.Pods.ShouldPodRuntimeBeRemoved(uid)
		}
		d.pods = append(d.pods, p)
	}
	return n
}

func newerSandbox(a, b *Sandbox) bool {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID)) < 0
}

// owned says whether an object is ours.
func (d *decider) owned(o Object) bool { return d.Owned == nil || d.Owned(o) }

// judgeContainers decides on the containers.
func (d *decider) judgeContainers() {
	for i := range d.Snapshot.Containers {
		c := &d.Snapshot.Containers[i]
		o := Object{
			Kind: KindContainer, ID: c.ID, PodUID: d.pods[d.members[i]].uid, Namespace: c.Namespace, Pod: c.Pod,
			Name: c.Name, Attempt: c.Attempt, Labels: c.Labels,
		}
		d.decisions = append(d.decisions, Decision{Object: o, Reason: WithinLimits, index: i})
	}
	d.makeUnits()
	d.removeOfEndedPods()
	d.enforcePerPod(limit(d.Policy.MaxPerPodContainer, 1), OverPerPod)
	d.enforceTotal()
	for i := range d.members {
		if d.holdBack(&d.decisions[i]); !d.decisions[i].Remove {
			d.pods[d.members[i]].stays = true
		}
	}
}

// holdBack keeps what failed to go a moment ago.
func (d *decider) holdBack(v *Decision) {
	if !v.Remove {
		return
	}
	if at, ok := d.RetryAt[v.ID]; ok && at.After(d.Now) {
		v.Remove, v.Reason, v.Until = false, BackingOff, at
	}
}

// makeUnits collects what can go, by pod and name.
func (d *decider) makeUnits() {
	all, unitOf := d.Snapshot.Containers, make([]int, len(d.members))
	for i := range all {
		n := d.unit(d.members[i], all[i].Name)
		u := &d.units[n]
		if u.size == 0 || newestFirst(&all[i], &all[u.newest]) < 0 {
			u.newest = i
		}
		u.size++
		unitOf[i] = n
	}
	memory := make([]int, len(all))
	for i := range d.units {
		u := &d.units[i]
		u.dead, memory = memory[:0:u.size], memory[u.size:]
	}
	for i, n := range unitOf {
		u := &d.units[n]
		if reason := d.protected(i, u); reason != "" {
			d.decisions[i].Reason = reason
			continue
		}
		u.dead = append(u.dead, i)
	}
	for i := range d.units {
		d.sortUnit(&d.units[i])
	}
}

// unit returns the index of a unit. A pod has few.
func (d *decider) unit(pod int, name string) int {
	for n := d.pods[pod].firstUnit; n >= 0; n = d.units[n].next {
		if d.units[n].name == name {
			return n
		}
	}
	n := len(d.units)
	d.units = append(d.units, unit{pod: pod, name: name, next: d.pods[pod].firstUnit})
	d.pods[pod].firstUnit = n
	return n
}

// sortUnit puts the newest attempt first and notes when each ended, which was not
// after a newer one did: so no rule about age takes a newer one before an older one,
// and removing the older changes nothing for the newer.
func (d *decider) sortUnit(u *unit) {
	slices.SortFunc(u.dead, func(a, b int) int {
		return newestFirst(&d.Snapshot.Containers[a], &d.Snapshot.Containers[b])
	})
	latest := d.Now.UnixNano()
	for _, i := range u.dead {
		latest = min(latest, d.endOf(&d.Snapshot.Containers[i]).UnixNano())
		d.ends[i] = latest
	}
}

// protected returns why a container cannot go whatever the limits say, or nothing.
func (d *decider) protected(i int, u *unit) Reason {
	c, v, p := &d.Snapshot.Containers[i], &d.decisions[i], &d.pods[u.pod]
	if p.uid == "" {
		return NoPod
	}
	if !d.owned(v.Object) {
		p.foreign = true
		return NotOurs
	}
	switch c.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if v.unused = i == u.newest; v.unused && !p.ended {
			return MayStart
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
	default:
		return Running
	}
	if until := d.endOf(c).Add(d.Policy.MinAge); until.After(d.Now) {
		v.Until = until
		return Young
	}
	return ""
}

// endOf is when a container ended; one that never ran, when it was made. It is never
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
