package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	machinery "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// An oursSide drives our manager at the moments at which the kubelet's loop would make a
// turn: 10 s after the previous turn, or when the pods that it evicted are cleaned up. After
// a collection, our manager evaluates again at once.
type oursSide struct {
	*machine
	t           *testing.T
	ctx         context.Context
	cancel      context.CancelFunc
	manager     *eviction.Manager
	pods        map[string]*corev1.Pod // pods that ask for admission
	looks       int                    // number of looks in this step
	between     bool                   // the kubelet's loop has no such look
	over        bool                   // the kubelet chooses at random
	collects    int                    // number of collections in progress
	begun       int                    // number of collections that have started
	collectedIn int                    // number of the look that started the last collection
	asked       []*killRequest
	turnAt      time.Duration // when this turn began
	found       *eviction.Decision
	measured    bool        // a look has requested pod figures
	late        []string    // pods that are overdue
	shorter     []types.UID // pods whose grace period becomes zero
}

// A killRequest is a call of Kill that has not returned yet.
type killRequest struct {
	pod      *corev1.Pod
	eviction eviction.Eviction
	begun    chan attempt
}

// playOurs plays a world with our manager.
func playOurs(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &oursSide{machine: newMachine(w), t: t, pods: newcomers()}
		o.start()
		for len(o.all) < w.Turns && !o.over {
			if o.restartsBefore() {
				o.restart()
			}
			o.turn()
		}
		o.stop()
		all = w.apart(o.all)
	})
	return all
}

func (o *oursSide) start() {
	hard, soft, grace, reclaim := settingMaps(o.w)
	allocatable := []string{}
	if o.w.Allocatable {
		allocatable = []string{"pods"}
	}
	thresholds, err := eviction.ParseThresholds(eviction.ThresholdSettings{
		EvictionHard: hard, EvictionSoft: soft, EvictionSoftGracePeriod: grace, EvictionMinimumReclaim: reclaim,
		EnforceNodeAllocatable: allocatable, Lenient: true,
	})
	require.NoError(o.t, err)
	o.ctx, o.cancel = context.WithCancel(o.t.Context())
	o.manager, err = eviction.New(eviction.Config{
		Stats: o, Pods: o.active, Killer: o, ContainerGC: o, ImageGC: o, CleanedUp: o.isClean,
		Policy: eviction.Policy{
			Thresholds: thresholds, PressureTransitionPeriod: o.w.Transition, MaxPodGracePeriodSeconds: o.w.MaxGrace,
			MaxParallelEvictions: o.w.Parallel, IgnoreLocalStorageLimits: o.w.NoLimits,
		},
		LimitsPeriod: 400 * time.Millisecond,
		Node:         &corev1.ObjectReference{Kind: "Node", Name: "n"}, Events: o, AnnotatedEvents: o,
		Observer: eviction.Observer{Evaluated: o.evaluated, Overdue: o.overdue},
	})
	require.NoError(o.t, err)
}

func (o *oursSide) stop() {
	o.cancel()
	o.manager.Wait()
	o.asked = nil
}

func (o *oursSide) restart() {
	o.stop()
	o.restarted()
	o.start()
}

// turn evaluates as the kubelet's loop does in one turn and until the next one.
func (o *oursSide) turn() {
	o.begin()
	o.looks, o.turnAt = 0, o.now()
	for o.look() && len(o.asked) == 0 && !o.over {
		o.finishCollections()
	}
	if o.step["escalated"] != "" {
		o.step["escalated"] = sorted(o.step["escalated"]) // their kills begin in random order
	}
	o.observe()
	defer o.end()
	evicted, restarts := o.answer()
	if restarts {
		o.end()
		o.restart()
		return
	}
	if len(evicted) == 0 {
		o.pass(o.w.Interval)
		return
	}
	for range 30 {
		if o.pass(time.Second); o.over {
			return
		}
		if !slices.ContainsFunc(evicted, func(p *corev1.Pod) bool { return !o.isClean(p.UID) }) {
			break
		}
	}
}

// look evaluates once. It reports whether the evaluation has started a collection.
func (o *oursSide) look() bool {
	before := o.begun
	o.looks++
	_, err := o.manager.Evaluate(o.ctx)
	if err != nil {
		require.ErrorIs(o.t, err, errWorld)
	}
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begun > before
}

// finishCollections waits for the collections that are in progress.
func (o *oursSide) finishCollections() {
	for o.running() > 0 {
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func (o *oursSide) running() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.collects
}

// answer starts the requested kills: those for limits one after the other as in the kubelet,
// the others concurrently. It returns when all of them have ended or are overdue.
func (o *oursSide) answer() (evicted []*corev1.Pod, restarts bool) {
	limits, victims := o.requests()
	for len(limits)+len(victims) > 0 {
		now := victims
		if len(limits) > 0 {
			now, limits = limits[:1], limits[1:]
		} else {
			victims = nil
		}
		wait := time.Duration(0)
		for i, r := range now {
			a := o.kill(r.pod.Name, r.eviction.GracePeriodSeconds, r.eviction.Apply)
			evicted = append(evicted, r.pod)
			r.begun <- a
			takes := min(a.takes, killTimeout(r.eviction.GracePeriodSeconds))
			if after, ok := o.restarting(); ok && after < takes {
				time.Sleep(after)
				o.forget(slices.Concat(now[i+1:], limits, victims))
				return evicted, true
			}
			wait = max(wait, takes)
		}
		if len(limits)+len(victims) > 0 {
			time.Sleep(wait)
			synctest.Wait()
			continue
		}
		if o.pass(wait); o.over {
			break
		}
	}
	return evicted, false
}

// forget drops kills that the kubelet's side reaches only after the restart.
func (o *oursSide) forget(requests []*killRequest) {
	for _, r := range requests {
		delete(o.step, "kill "+r.pod.Name+"/event")
		delete(o.step, "kill "+r.pod.Name+"/annotations")
	}
}

// requests returns the requested kills, in order.
func (o *oursSide) requests() (limits, victims []*killRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pods := o.w.Pods
	slices.SortFunc(o.asked, func(a, b *killRequest) int {
		return slices.IndexFunc(pods, func(p podSpec) bool { return p.Pod.UID == a.pod.UID }) -
			slices.IndexFunc(pods, func(p podSpec) bool { return p.Pod.UID == b.pod.UID })
	})
	for _, r := range o.asked {
		if strings.HasSuffix(string(r.eviction.Signal), ".limit") {
			limits = append(limits, r)
		} else if !o.over {
			victims = append(victims, r)
		}
	}
	o.asked = nil
	return limits, victims
}

// pass lets time pass while pods terminate, with the looks that the world draws for this
// time.
func (o *oursSide) pass(d time.Duration) {
	until := o.now() + d
	for _, l := range o.w.Looks {
		at := o.turnAt + l.After
		if l.Turn != len(o.all)+1 || at <= o.now() || at >= until || o.over {
			continue
		}
		time.Sleep(at - o.now())
		synctest.Wait()
		o.lookBetween()
	}
	if !o.over {
		time.Sleep(until - o.now())
		synctest.Wait()
	}
}

// observe records the observations after a turn.
func (o *oursSide) observe() {
	o.conditions(o.manager)
	for name, pod := range o.pods {
		r := o.manager.Admit(o.ctx, lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
		o.set("admit "+name, admissionText(r.Admit, r.Reason, r.Message))
	}
}

// evaluated records the result of a look. The kubelet evaluates once a turn.
func (o *oursSide) evaluated(d eviction.Decision, _ error) {
	o.found = &d
	if o.between {
		return
	}
	o.mu.Lock()
	o.shorter = append(o.shorter, d.Escalate...)
	o.mu.Unlock()
	if o.looks == 1 {
		o.thresholds(&d)
	}
	if len(d.Candidates) > 0 && !o.over {
		var names []string
		for i := range d.Candidates {
			names = append(names, d.Candidates[i].Pod.Name)
		}
		o.step["ranking"] = fmt.Sprint(names)
	}
}

func (o *oursSide) thresholds(d *eviction.Decision) {
	var fresh []threshold
	for i := range d.Thresholds {
		r := &d.Thresholds[i]
		if r.State != eviction.Met && r.State != eviction.Reclaiming {
			continue
		}
		t, ok := o.w.thresholdOf(r.Threshold.Signal, r.Quantity)
		require.True(o.t, ok, "%s is not a threshold of this world", r.Threshold)
		lists := []string{"unresolved"}
		if r.State == eviction.Met {
			lists = append(lists, "met")
		}
		if r.Due {
			lists = append(lists, "due")
		}
		if r.Due && !r.Old {
			lists = append(lists, "fresh")
			fresh = append(fresh, t)
		}
		for _, list := range lists {
			o.met(list, t, r.Quantity, r.Observation.Available)
		}
	}
	if len(o.w.withoutTwins(fresh)) > 1 && len(d.Limits) == 0 {
		o.over = true
		var picks []string
		for _, r := range d.Reclaim {
			picks = append(picks, string(r.Signal))
		}
		if d.Signal != "" {
			picks = append(picks, string(d.Signal))
		}
		if picks == nil {
			picks = []string{"nothing"}
		}
		slices.Sort(picks)
		o.set("picks", strings.Join(slices.Compact(picks), " "))
	}
}

// active returns the active pods.
func (o *oursSide) active() []*corev1.Pod {
	all := o.machine.pods()
	if o.w.Gaps {
		all = append([]*corev1.Pod{nil}, all...)
	}
	return all
}

// Node is part of eviction.Stats.
func (o *oursSide) Node(context.Context) (eviction.NodeStats, error) {
	layout, _ := o.layout()
	if in(o.w.Blind, o.now()) {
		return eviction.NodeStats{Layout: layout}, errWorld
	}
	return eviction.NodeStats{Layout: layout, Observations: o.nodeStats()}, nil
}

// Pods is part of eviction.Stats.
func (o *oursSide) Pods(context.Context, []*corev1.Pod) ([]eviction.PodStats, error) {
	o.measured = true
	if in(o.w.Blind, o.now()) {
		return nil, errWorld
	}
	return o.figuresOfPods(), nil
}

// Kill is part of eviction.Killer.
func (o *oursSide) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
	if takes, ok := o.shortened(pod); ok {
		if !o.over {
			o.set("escalation of "+pod.Name, escalationText(&e))
		}
		return sleep(ctx, takes)
	}
	r := &killRequest{pod: pod, eviction: e, begun: make(chan attempt, 1)}
	o.mu.Lock()
	o.asked = append(o.asked, r)
	o.mu.Unlock()
	var a attempt
	select {
	case a = <-r.begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := sleep(ctx, a.takes); err != nil {
		return err
	}
	return a.err
}

// shortened returns the remaining duration of a termination whose grace period our manager
// shortens.
func (o *oursSide) shortened(pod *corev1.Pod) (takes time.Duration, ok bool) {
	o.mu.Lock()
	i := slices.Index(o.shorter, pod.UID)
	d := o.deaths[pod.Name]
	if ok = i >= 0 && d != nil; ok {
		o.shorter = slices.Delete(o.shorter, i, i+1)
		takes = d.ends - o.now()
	}
	o.mu.Unlock()
	if ok && !o.over {
		o.add("escalated", pod.Name)
	}
	return takes, ok
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// DeleteAllUnusedContainers is part of eviction.ContainerGC.
func (o *oursSide) DeleteAllUnusedContainers(context.Context) error { return o.collection(0) }

// DeleteUnusedImages is part of eviction.ImageGC.
func (o *oursSide) DeleteUnusedImages(context.Context, eviction.ReclaimPlan) error {
	return o.collection(1)
}

func (o *oursSide) collection(which int) error {
	o.count(1)
	defer o.count(-1)
	if o.over {
		return nil
	}
	o.mu.Lock()
	again := o.collectedIn == o.looks && o.step["collections"] != ""
	o.collectedIn = o.looks
	o.mu.Unlock()
	return o.collect(which, again)
}

func (o *oursSide) count(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.collects += n
	o.begun += max(n, 0)
}

// Eventf records an event of the node.
func (o *oursSide) Eventf(object machinery.Object, kind, reason, format string, args ...any) {
	if !o.over && reason != eviction.ExceededGracePeriod {
		o.set("event", eventText(object, kind, reason, fmt.Sprintf(format, args...)))
	}
}

// AnnotatedEventf records an event of a pod.
func (o *oursSide) AnnotatedEventf(object machinery.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if o.over && reasonOf(text) != "limit" {
		return
	}
	name := object.(*corev1.Pod).Name
	o.set("kill "+name+"/event", eventText(object, kind, reason, text))
	o.set("kill "+name+"/annotations", annotationsText(annotations))
}
