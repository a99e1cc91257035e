package pleg

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/net"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A model computes, for the rules, the results of both sides where they differ on purpose:
// which pod is inspected when, and its resulting status.
type model struct {
	steps []stepModel
}

type stepModel struct {
	pods   map[string]expectation
	gauges map[string]int // like those of the kubelet, which never return to 0
	counts map[string]int
	cause  string // why the last list before this step failed
	// strays is set if the last list had objects without a pod. runs counts the running pods:
	// first by our rule, then by the kubelet's rule.
	strays bool
	runs   [2]int
	report judge.Facts // results, errors and counters of our Generator
}

// An expectation is the model's result for one pod after one step.
type expectation struct {
	ours, kubelet map[string]string // events by object
	facts         judge.Facts       // facts of our status
	fresh, old    string            // freshness on our side and on the kubelet's

	// failed and kubeletFailed are set if the last inspection failed. late is set if ours
	// exceeded its deadline, and waits if ours is in back-off.
	failed, kubeletFailed, late, waits bool
	// parted is the reason for which the two sides have delivered events up to different
	// states.
	parted string
	// bare is set if objects of the pod have or had no labels.
	bare bool
	// gone is set if our relist of this pod found that it does not exist.
	gone bool
	// settles is set if our Generator repeated a status call whose result contradicted the
	// list.
	settles bool
	// changes is set if our Generator inspected the pod because of a listed change.
	changes bool
	// onlyChanged is set if all changes found are changes without an event.
	onlyChanged, reinspected bool
	known, kubeletKnown      map[string]Object
	listed                   []Object
	before                   judge.Facts // our facts of the previous step
	ipSource                 string
	// inspected and kubeletInspected are set if the side inspected the pod in this step.
	inspected, kubeletInspected bool
	// slow is set if our inspection is slow or queued behind others; queued is set only in the
	// second case. took is its duration in seconds without the time in the queue. again is set
	// if an inspection failed before.
	slow, slowForKubelet, queued, again bool
	took                                int
	changed                             []string // objects that changed without an event
}

// podModel is the model's state of a pod.
type podModel struct {
	exists               bool
	delivered            map[string]int32 // classes
	states               map[string]int32 // of the same objects
	good                 map[string]Object
	ips                  []string
	ipSource             string
	name                 string
	failures             int
	retryAt              time.Duration
	reinspect, requested bool
	err                  string

	acknowledged      map[string]int32
	kubeletGood       map[string]Object
	kubeletRequested  bool
	kubeletKnows      bool
	kubeletErr        bool
	fresh, kubeletOld string
	parted            string
	gone              bool
	facts             judge.Facts
	late              bool
	bare              bool
	listed            []Object
	// contradicted is set if the list at inspectedAt had another state of an object than the
	// status.
	contradicted bool
	inspectedAt  time.Duration
}

func newModel(w *World) *model {
	m, n, pods, rep := &model{}, newNode(w), map[string]*podModel{}, &reporter{w: w}
	for _, uid := range uids() {
		pods[uid] = &podModel{fresh: "nothing", kubeletOld: "nothing"}
	}
	counts, gauges, cause, last := map[string]int{}, map[int32]int{}, "", stepModel{}
	for _, s := range w.Steps {
		n.begin(s)
		for _, uid := range s.Reinspect {
			pods[uid].requested, pods[uid].kubeletRequested = true, true
		}
		sm := stepModel{pods: map[string]expectation{}, cause: cause, strays: last.strays, runs: last.runs}
		rep.begin(pods)
		listed := n.lists(s)
		n.reach(2)
		all := make([]expectation, len(uids()))
		for i, uid := range uids() {
			p, e := pods[uid], &all[i]
			p.bare = p.bare || slices.ContainsFunc(s.Changes, func(c Change) bool {
				return c.Put != nil && c.Put.Pod == uid && c.Put.Unlabelled
			})
			*e = expectation{before: p.facts, ours: map[string]string{}, kubelet: map[string]string{}}
			if listed != nil && (s.Look.Pod == "" || s.Look.Pod == uid) {
				p.kubeletLooks(e, s, n, kubeletObjects(*listed, uid, s.Look.Pod != "" && !w.Unfiltered))
				p.oursLooks(e, s, n, p.objects(*listed, uid, s.Look.Pod != ""))
			}
		}
		queue(all, w.Places, pods)
		for i, uid := range uids() {
			pods[uid].finish(&all[i], uid)
			sm.pods[uid] = all[i]
		}
		if listed != nil && s.Look.Pod == "" {
			counts, cause = map[string]int{}, ""
			count(*listed, counts, gauges)
			sm.countPods(*listed)
		} else if s.Look.Fails != "" && s.Look.Pod == "" {
			cause = "list " + s.Look.Fails + ": rpc error: code = Unavailable desc = no " + s.Look.Fails + " today"
		}
		sm.counts, sm.gauges = counts, map[string]int{}
		for state, v := range gauges {
			sm.gauges[countName(state)] += v
		}
		sm.report = rep.end(s, sm, listed)
		last = sm
		m.steps = append(m.steps, sm)
	}
	return m
}

// lists returns the result of a list call, or nil if it fails.
func (n *node) lists(s Step) *[]Object {
	if s.Look.None || s.Look.Fails == "sandboxes" {
		return nil
	}
	all := n.list(true)
	n.reach(1)
	if s.Look.Fails != "" {
		return nil
	}
	all = append(all, n.list(false)...)
	return &all
}

// kubeletObjects returns the listed objects that the kubelet assigns to a pod: containers by
// their label, and with a filter, sandboxes as well.
func kubeletObjects(listed []Object, uid string, filtered bool) []Object {
	return slices.DeleteFunc(slices.Clone(listed), func(o Object) bool {
		return o.Pod != uid || o.Unlabelled && (filtered || !o.isSandbox())
	})
}

// objects returns the listed objects that our Generator assigns to a pod: a container without
// labels belongs to the pod of its sandbox. A relist of one pod does not update objects
// without labels.
func (p *podModel) objects(listed []Object, uid string, own bool) (all []Object) {
	for _, o := range listed {
		known := slices.ContainsFunc(listed, func(b Object) bool { return b.ID == o.Sandbox })
		if o.Pod == uid && (!o.Unlabelled || !own && (o.isSandbox() || known)) {
			all = append(all, o)
		}
	}
	for _, o := range p.listed {
		if own && o.Unlabelled {
			all = append(all, o)
		}
	}
	return all
}

// count counts containers, and sets the gauges of all states that occur.
func count(listed []Object, counts map[string]int, gauges map[int32]int) {
	now := map[int32]int{}
	for _, o := range listed {
		if !o.isSandbox() {
			if o.Pod != "" {
				counts[countName(o.State)]++
			}
			if o.State == strange {
				o.State = lost
			}
			now[o.State]++
		}
	}
	maps.Copy(gauges, now)
}

// countPods records how many pods are running.
func (sm *stepModel) countPods(listed []Object) {
	runs := map[string]bool{}
	sm.strays = false
	for _, o := range listed {
		runs[o.Pod] = runs[o.Pod] || o.isSandbox() && o.State == ready
		sm.strays = sm.strays || o.Pod == ""
	}
	sm.runs = [2]int{}
	for pod, is := range runs {
		if is && pod != "" {
			sm.runs[0]++
		}
		if is {
			sm.runs[1]++
		}
	}
}

// class returns the state as far as it matters for events: created and unknown are equal.
func (o *Object) class() int32 {
	switch {
	case o.isSandbox() && o.State == ready, !o.isSandbox() && o.State == running:
		return running
	case o.isSandbox() && o.State == 1, !o.isSandbox() && o.State == exited:
		return exited
	default:
		return lost
	}
}

// state returns the state that our Generator compares: created and unknown differ.
func (o *Object) state() int32 {
	if !o.isSandbox() && o.State == created {
		return created
	}
	return o.class()
}

func classes(objects []Object) map[string]int32 { return each(objects, (*Object).class) }

func each(objects []Object, of func(*Object) int32) map[string]int32 {
	all := map[string]int32{}
	for i := range objects {
		all[objects[i].ID] = of(&objects[i])
	}
	return all
}

// transitions returns the events between two states of a pod, and whether anything has
// changed.
func transitions(from, to map[string]int32) (events map[string]string, changed bool) {
	events = map[string]string{}
	for id, is := range to {
		was, existed := from[id]
		switch {
		case existed && was == is:
			continue
		case is == running:
			events[id] = "ContainerStarted"
		case is == exited:
			events[id] = "ContainerDied"
		}
		changed = true
	}
	for id, was := range from {
		if _, exists := to[id]; !exists {
			changed = true
			if events[id] = "ContainerDied ContainerRemoved"; was == exited {
				events[id] = "ContainerRemoved"
			}
		}
	}
	return events, changed
}

func (p *podModel) kubeletLooks(e *expectation, s Step, n *node, objects []Object) {
	if s.Look.Pod == "" || len(objects) > 0 {
		p.kubeletOld = fmt.Sprint("step at ", s.At)
	}
	if s.Look.Pod != "" && len(objects) == 0 {
		return // its status is not found
	}
	if len(objects) == 0 && !p.kubeletKnows {
		return
	}
	p.kubeletKnows = true
	events, changed := transitions(p.acknowledged, classes(objects))
	requested := p.kubeletRequested
	p.kubeletRequested = false
	if !changed && !requested {
		return
	}
	e.kubeletInspected = true
	found := map[string]Object{}
	for _, o := range objects {
		if now, exists := n.find(o.ID); exists {
			if now.Fails != "" {
				p.kubeletRequested, p.kubeletErr = true, true
				return
			}
			found[o.ID] = now
			e.slowForKubelet = e.slowForKubelet || now.Slow > 0
		}
	}
	p.kubeletErr, p.kubeletGood = false, found
	if !changed {
		events[""] = "PodSync"
	}
	e.onlyChanged, e.reinspected = changed && len(events) == 0, requested
	e.kubelet, p.acknowledged = events, classes(objects)
	if len(objects) == 0 {
		p.kubeletKnows, p.kubeletGood = false, nil
	}
}

func (p *podModel) oursLooks(e *expectation, s Step, n *node, objects []Object) {
	p.fresh = fmt.Sprint("step at ", s.At)
	own := s.Look.Pod != ""
	if !p.exists && len(objects) == 0 {
		p.requested = p.requested && own
		p.gone = p.gone || own
		return
	}
	p.exists, p.listed = true, objects
	p.reinspect, p.requested = p.reinspect || p.requested, false
	_, changed := transitions(p.states, each(objects, (*Object).state))
	switch {
	case len(objects) == 0:
		p.deliver(e, nil, p.reinspect)
		kept := *p
		*p = podModel{
			exists: own, gone: own, fresh: p.fresh, acknowledged: kept.acknowledged, kubeletGood: kept.kubeletGood,
			kubeletRequested: kept.kubeletRequested, kubeletKnows: kept.kubeletKnows, kubeletErr: kept.kubeletErr,
			kubeletOld: kept.kubeletOld, parted: kept.parted, facts: kept.facts, bare: kept.bare,
		}
		return
	case p.failures > 0 && s.At < p.retryAt && p.retryAt-s.At <= time.Minute:
		if e.waits = true; changed {
			p.deliver(e, objects, false)
		}
	case p.failures > 0 || p.reinspect || changed || p.contradicted && s.At > p.inspectedAt:
		e.changes = changed
		p.inspect(e, s, n, objects, changed)
	}
	p.gone = false
}

func (p *podModel) inspect(e *expectation, s Step, n *node, objects []Object, changed bool) {
	all := p.reinspect
	e.inspected, e.again = true, p.failures > 0
	p.reinspect, p.err, p.late = false, "", false
	found, took := map[string]Object{}, 0
	for _, o := range objects {
		was, known := p.good[o.ID]
		if known && !all && was.class() == o.class() && o.class() != lost && (!o.isSandbox() || o.class() != running || was.IP != "") {
			found[o.ID] = was
			continue
		}
		now, exists := n.find(o.ID)
		if !exists {
			continue
		}
		took += now.Slow
		e.took = took
		switch {
		case took > 10:
			p.err, p.late, e.took = "context deadline exceeded", true, 10
		case now.Fails == "error":
			p.err = now.failure().Error()
		case now.Fails == "empty" && o.isSandbox():
			p.err = "pod sandbox status is nil"
		case now.Fails == "empty":
			p.err = "container status is nil"
		default:
			found[o.ID] = now
			continue
		}
		break
	}
	if p.err != "" {
		p.retryAt = s.At + min(time.Second<<p.failures, time.Minute) // from the end of the inspection: see queue
		p.failures++
		p.reinspect = all
		p.deliver(e, objects, false)
		return
	}
	p.ips, p.ipSource = p.addresses(found)
	if p.name = ""; slices.ContainsFunc(objects, Object.named) {
		p.name = "ns/name-" + objects[0].Pod
	}
	settles := p.contradicted && !agree(p.good, objects) && agree(found, objects)
	e.settles = p.contradicted
	p.good, p.contradicted, p.inspectedAt = found, !agree(found, objects), s.At
	podSync := all || p.failures > 0 || settles && !changed
	p.failures = 0
	p.deliver(e, objects, podSync)
}

// agree reports whether each listed object has a status with the listed state.
func agree(found map[string]Object, listed []Object) bool {
	return !slices.ContainsFunc(listed, func(o Object) bool {
		is, known := found[o.ID]
		return !known || is.state() != o.state()
	})
}

func (p *podModel) deliver(e *expectation, objects []Object, podSync bool) {
	events, _ := transitions(p.delivered, classes(objects))
	if podSync && len(events) == 0 {
		events[""] = "PodSync"
	}
	now := each(objects, (*Object).state)
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if was, existed := p.states[id]; (now[id] == lost || now[id] == created) && (!existed || was != now[id]) {
			e.changed = append(e.changed, id)
		}
	}
	e.ours, p.delivered, p.states = events, classes(objects), now
}

// addresses returns our addresses: the addresses of the newest sandbox, or the previous
// addresses as long as no other sandbox is ready.
func (p *podModel) addresses(found map[string]Object) (ips []string, source string) {
	boxes := sorted(found, true)
	newest := ""
	if len(boxes) > 0 && boxes[0].State == ready {
		newest = boxes[0].ID
		if ips := boxes[0].addresses(); len(ips) > 0 {
			return ips, newest
		}
	}
	for _, b := range boxes {
		if b.State == ready && (b.ID != newest || b.ID != p.ipSource) {
			return nil, ""
		}
	}
	return p.ips, p.ipSource
}

// addresses returns a sandbox's addresses: none if one of them is invalid.
func (o *Object) addresses() []string {
	ips := strings.Fields(o.IP + " " + o.More)
	for _, ip := range ips {
		if net.ParseIPSloppy(ip) == nil {
			return nil
		}
	}
	return ips
}

// named reports whether the listed object has the pod's name.
func (o Object) named() bool { return o.isSandbox() && !o.NoName || !o.isSandbox() && !o.Unlabelled }

// label returns the name of a container as its label has it.
func (o *Object) label() string {
	if o.NoName {
		return ""
	}
	return o.Name
}

// restarts returns the annotation, or 0.
func (o *Object) restarts() int {
	n, err := strconv.Atoi(o.Restarts)
	if err != nil {
		return 0
	}
	return n
}

// sorted returns sandboxes or containers in the order of ours.
func sorted(found map[string]Object, sandboxes bool) (all []Object) {
	for _, o := range found {
		if o.isSandbox() == sandboxes {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b Object) int {
		if sandboxes {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Created, a.Created), cmp.Compare(b.ID, a.ID))
		}
		return cmp.Or(cmp.Compare(b.restarts(), a.restarts()), cmp.Compare(b.Created, a.Created), cmp.Compare(b.ID, a.ID))
	})
	return all
}

// finish computes the parts of an expectation that follow from the state after a step.
func (p *podModel) finish(e *expectation, uid string) {
	e.failed, e.kubeletFailed, e.late = p.failures > 0, p.kubeletErr, p.late && p.failures > 0
	e.known, e.kubeletKnown, e.listed, e.ipSource = maps.Clone(p.good), maps.Clone(p.kubeletGood), p.listed, p.ipSource
	e.bare, e.gone, e.fresh, e.old = p.bare, p.gone, p.fresh, p.kubeletOld
	differ := !maps.Equal(p.delivered, p.acknowledged) && len(p.delivered)+len(p.acknowledged) > 0
	switch {
	case p.gone && differ:
		p.parted = "gone"
	case differ || e.failed || e.kubeletFailed:
		p.parted = cmp.Or(p.parted, "failed")
	}
	e.parted = p.parted
	if !differ && !e.failed && !e.kubeletFailed {
		p.parted = ""
	}
	e.facts = judge.Facts{}
	p.view(uid).facts(e.facts, uid)
	p.facts = e.facts
}

// view returns our status.
func (p *podModel) view(uid string) (v view) {
	v.uid = uid
	boxes, containers := sorted(p.good, true), sorted(p.good, false)
	v.name = p.name
	v.ips = p.ips
	if v.stale = p.failures > 0; v.stale {
		v.err = fmt.Errorf("%s", p.err)
	}
	for _, b := range boxes {
		v.sandboxes = append(v.sandboxes, sandboxView{b.ID, sandboxText(b.sandboxStatus())})
		v.runs = v.runs || b.State == ready
	}
	for _, c := range containers {
		name := c.label()
		newest := slices.IndexFunc(containers, func(o Object) bool {
			return o.label() == name && len(boxes) > 0 && o.Sandbox == boxes[0].ID
		})
		v.runs = v.runs || c.State == running || c.class() == lost && c.State != created
		v.containers = append(v.containers, containerView{
			id: c.ID, name: name, restarts: c.restarts(), text: c.text(),
			active: newest >= 0 && boxes[0].State == ready && containers[newest].ID == c.ID,
		})
	}
	return v
}
