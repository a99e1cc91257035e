package podcache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A cause is a reason for which the two sides differ.
type cause string

const (
	olderStatus   cause = "older status"
	olderGlobal   cause = "older global time"
	olderDeletion cause = "older deletion"
	olderSeen     cause = "older observation"
	seenAbsent    cause = "observed while absent"
	deletion      cause = "deletion"
	equalTime     cause = "equal time"
	heldBack      cause = "held back"
	waiterGaveUp  cause = "waiter gave up"
)

// A modelStep is the expected reports of both sides after one operation, and the possible
// causes of differences.
type modelStep struct {
	kubelet, ours judge.Facts
	causes        map[string][]cause // by fact
	told          judge.Facts        // reports that only our cache has
}

// modelPod is the state of a pod on both sides. A time that is not set is 0.
type modelPod struct {
	ours    *string
	name    string // of ours
	fresh   int    // time of our entry
	held    int    // since when our global time excludes the pod
	kubelet *string
	// modified and seen are the kubelet's two times of an entry.
	modified, seen int
	causes         []cause
}

type modelWaiter struct {
	pod           string
	min           int
	ours, kubelet string // what was received
	causes        []cause
}

type cacheModel struct {
	pods    map[string]*modelPod
	waiters []*modelWaiter
	// global is our global time. back is the kubelet's, which can go back.
	global, back int
	blocked      int     // how many readers had to wait
	causes       []cause // causes of differences in the global times
}

func modelOf(w *World) (steps []modelStep) {
	m := &cacheModel{pods: map[string]*modelPod{}}
	for _, uid := range uids() {
		m.pods[uid] = &modelPod{}
	}
	last := 0
	for _, o := range w.Operations {
		s := modelStep{kubelet: judge.Facts{}, ours: judge.Facts{}, causes: map[string][]cause{}}
		m.apply(o, &s)
		last = max(last, o.At)
		m.report(&s, last)
		steps = append(steps, s)
	}
	return steps
}

// writable reports whether our cache accepts a write with a time.
func (m *cacheModel) writable(p *modelPod, t int) bool { return t >= m.oursTime(p) }

// oursTime returns how new our status of a pod is.
func (m *cacheModel) oursTime(p *modelPod) int {
	if p.held > 0 {
		return p.fresh
	}
	return max(p.fresh, m.global)
}

// write notes a write to a pod that ours accepts.
func (p *modelPod) write(t int) {
	if p.fresh = t; t >= p.held {
		p.held = 0
	}
}

// setGlobal sets our global time, which never goes back.
func (m *cacheModel) setGlobal(o Operation) {
	if o.At < m.global {
		m.causes = append(m.causes, olderGlobal)
		return
	}
	m.causes = nil
	for uid, p := range m.pods {
		switch t := m.oursTime(p); {
		case !o.Except || uid != o.Pod:
			p.held = 0
		case p.held > 0 || t < o.At:
			p.fresh, p.held = t, o.At
		}
	}
	if m.global = o.At; o.Except {
		m.causes = append(m.causes, heldBack)
	}
}

func (m *cacheModel) apply(o Operation, s *modelStep) {
	p := m.pods[o.Pod]
	accepted := m.writable(p, o.At)
	switch o.Kind {
	case set:
		value := text(o.Pod, o.Name, o.err())
		s.kubelet["accepted"], s.ours["accepted"] = "true", fmt.Sprint(accepted)
		s.causes["accepted"] = []cause{olderStatus}
		if p.kubelet, p.modified, p.seen = &value, o.At, o.At; accepted {
			p.ours, p.name, p.causes = &value, o.Name, nil
			p.write(o.At)
		} else {
			p.causes = append(p.causes, olderStatus)
		}
	case observed:
		switch {
		case !accepted:
			p.causes = append(p.causes, olderSeen)
		case p.kubelet == nil:
			p.causes = append(p.causes, seenAbsent)
		}
		if p.kubelet != nil {
			p.seen = o.At
		}
		if accepted {
			p.write(o.At)
		}
	case deleted:
		if p.kubelet, p.modified, p.seen = nil, 0, 0; accepted {
			p.ours = nil
			p.write(o.At)
			p.causes = append(p.causes, deletion)
		} else {
			p.causes = append(p.causes, olderDeletion)
		}
	case global:
		if !o.Except {
			m.back = o.At
		}
		m.setGlobal(o)
	case wait:
		m.begin(o)
	case giveUp:
		if w := m.waiters[o.Who]; w.ours == "" {
			w.ours = gaveUp + "wait for a status of pod " + w.pod + ": context canceled"
			w.causes = append(w.causes, waiterGaveUp)
		}
	}
	if m.wake(o); o.Kind == wait && m.waiters[len(m.waiters)-1].ours == "" {
		m.blocked++
	}
}

func value(s *string, uid string) string {
	if s == nil {
		return text(uid, "", nil)
	}
	return *s
}

// kubeletTime returns how new the kubelet's status of a pod is.
func (m *cacheModel) kubeletTime(p *modelPod) int {
	if p.kubelet == nil {
		return m.back
	}
	return max(m.back, p.modified, p.seen)
}

func (m *cacheModel) begin(o Operation) {
	p := m.pods[o.Pod]
	w := &modelWaiter{pod: o.Pod, min: o.At}
	m.waiters = append(m.waiters, w)
	if t := m.kubeletTime(p); t > o.At {
		w.kubelet = value(p.kubelet, o.Pod)
	}
	if m.oursTime(p) == o.At {
		w.causes = append(w.causes, equalTime)
	}
}

// wake releases the waiters that an operation satisfies.
func (m *cacheModel) wake(o Operation) {
	for _, w := range m.waiters {
		p := m.pods[w.pod]
		notified := o.Kind == global && !o.Except || (o.Kind == set || o.Kind == observed) && o.Pod == w.pod
		if w.kubelet == "" && notified && o.At >= w.min {
			w.kubelet = value(p.kubelet, w.pod)
		}
		if t := m.oursTime(p); w.ours == "" && t > 0 && t >= w.min {
			w.ours = value(p.ours, w.pod)
		}
		if w.kubelet != w.ours {
			w.causes = slices.Concat(w.causes, p.causes, m.causes)
		}
	}
}

// report records the expected results of both sides. For reports that only our cache has,
// both sides have the model's value.
func (m *cacheModel) report(s *modelStep, last int) {
	var all []string
	waiting := false
	for _, uid := range uids() {
		if p := m.pods[uid]; p.ours != nil {
			all = append(all, text(uid, p.name, nil))
		}
	}
	for _, w := range m.waiters {
		waiting = waiting || w.ours == ""
	}
	s.told = judge.Facts{"told statuses": strings.Join(all, ", "), "told waiting": fmt.Sprint(waiting, m.blocked)}
	for _, uid := range uids() {
		p := m.pods[uid]
		status, fresh := "pod "+uid+"/status", "pod "+uid+"/as new as"
		s.kubelet[status], s.ours[status] = value(p.kubelet, uid), value(p.ours, uid)
		s.kubelet[fresh] = timeText(min(m.kubeletTime(p), last))
		s.ours[fresh] = timeText(min(m.oursTime(p), last))
		s.causes[status] = p.causes
		s.causes[fresh] = slices.Concat(p.causes, m.causes)
	}
	for i, w := range m.waiters {
		name := fmt.Sprintf("pod %s/waiter %d", w.pod, i)
		s.kubelet[name], s.ours[name] = cmp.Or(w.kubelet, "waits"), cmp.Or(w.ours, "waits")
		s.causes[name] = w.causes
	}
}

func timeText(t int) string {
	if t == 0 {
		return "nothing"
	}
	return fmt.Sprint(t)
}
