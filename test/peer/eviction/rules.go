package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "eviction/doc.go"

func rules() []judge.Rule[*world] {
	return slices.Concat(betweenRules(), quirkRules(), causeRules(), thresholdRules(), textRules())
}

// quirkRules are about the actions of a step: the collections, the order of pods, and the
// evicted pods.
func quirkRules() (all []judge.Rule[*world]) {
	for _, q := range []struct {
		quirk          quirk
		name, sentence string
		class          judge.Class
	}{
		{limitsAndThresholds, "thresholds despite a failed limit eviction", "In a pass that evicts a pod for a limit, the kubelet does nothing about thresholds; ours does the same, except that a pod whose earlier kill failed does not block the actions for thresholds.", judge.KubeletDefect},
		{limitZero, "local storage limit of zero", "The kubelet evicts a pod with a local storage limit of zero as soon as it uses anything; ours treats zero as no limit, as the kubelet does for a container.", judge.Deliberate},
		{splitLayers, "writable layers on a split filesystem", "If only images have a filesystem of their own, the kubelet does not count the writable layer towards a container's limit; ours counts it.", judge.KubeletDefect},
		{unmeasuredLast, "pods without stats", "The kubelet evicts a pod without stats first; ours treats it as a pod that uses nothing until [Policy.StatsGrace] has passed since the first evaluation that needs its stats.", judge.Deliberate},
		{oldPodFigures, "outdated pod stats", "The kubelet ranks pods by stats of any age; ours uses only stats up to [Policy.MaxObservationAge] old, and disk usage up to an hour old.", judge.Deliberate},
		{inodeUnits, "storage requests subtracted from inodes", "The kubelet subtracts a pod's request for ephemeral storage, in bytes, from the number of its inodes; ours does not.", judge.KubeletDefect},
		{containersBeside, "container requests with pod-level resources", "The kubelet ignores the ephemeral storage requests of containers if the pod also has pod-level resources, which cannot include ephemeral storage; ours counts them.", judge.KubeletDefect},
		{adopts, "evictions before a restart", "After a restart, the kubelet evicts more pods although the pods that it evicted before are still terminating; ours counts what these pods will free.", judge.Deliberate},
		{freedCounts, "disk space of terminated pods", "The kubelet does not count the disk space of a terminated pod that is not cleaned up yet; ours counts it as being freed, for at most 30 s.", judge.Deliberate},
		{endingPassed, "pods already being evicted", "The kubelet evicts the same pod again if it does not terminate in time or could not be killed; ours evicts the next pod.", judge.Deliberate},
		{failedLast, "pods whose kill failed", "The kubelet evicts the same pod again if it does not terminate in time or could not be killed; ours evicts the next pod.", judge.Deliberate},
		{severalGo, "several evictions per pass", "The kubelet evicts one pod per pass; ours evicts as many pods as are expected to free enough, up to [Policy.MaxParallelEvictions].", judge.Deliberate},
		{ownThreshold, "other thresholds after disk reclaim", "After reclaiming a disk, the kubelet evicts pods if any threshold is met; ours evicts pods only if the threshold that it acts on is still met.", judge.Deliberate},
		{collectionByLook, "stepwise disk reclaim", "In each pass the kubelet deletes unused containers, then images, and then evicts; ours takes new measurements after each of the two deletions, waits [Policy.ReclaimInterval] between two rounds, and does only what is still needed.", judge.Deliberate},
		{uselessPassed, "pods not using the starved resource", "The kubelet also evicts pods that use none of the starved resource; ours skips them.", judge.Deliberate},
		{hostPathStays, "hostPath volumes in the ranking", "The kubelet also ranks pods by what is in their host paths; ours ignores host paths, because they are not deleted with the pod.", judge.Deliberate},
		{otherFiles, "other pod files in the ranking", "When it ranks pods, ours counts a pod's other files on the node's disk, such as its /etc/hosts; the kubelet does not.", judge.Deliberate},
		{containerMemory, "pod memory from container stats", "If only containers have memory stats, the kubelet counts the pod's memory as zero; ours uses the sum of the containers' memory.", judge.Deliberate},
		{nothingMeasured, "ranking for a filesystem without usage", "For a filesystem that pods do not use, the kubelet orders pods of the same priority by their requests; ours orders them by their age.", judge.Deliberate},
		{figuresAfter, "pod stats after disk reclaim", "The kubelet ranks pods by stats from before it reclaimed a disk, and reports these stats in messages; ours uses stats from after the reclaim.", judge.Deliberate},
	} {
		r := judge.Rule[*world]{
			Name: q.name, Class: q.class, Doc: doc, Sentence: q.sentence, Ends: true,
			Explains: func(s judge.Scene[*world]) bool { return isDecision(s) && causeOf(s) == q.quirk },
		}
		all = append(all, r)
		if q.quirk == collectionByLook {
			r.Name, r.Ends = q.name+": nothing freed", false
			r.Explains = func(s judge.Scene[*world]) bool {
				return s.Fact == "collections" && causeOf(s) == q.quirk && stepOf(s).onlyCollectsInVain()
			}
			all = slices.Insert(all, len(all)-1, r)
		}
	}
	return all
}

// onlyCollectsInVain reports whether the sides differ only in collections that take no time
// and free nothing. Then the scenario goes on.
func (st *step) onlyCollectsInVain() bool {
	kubelet, ours := decisionOf(st.kubelet), decisionOf(st.ours)
	kubelet.collections, ours.collections = "", ""
	return kubelet == ours && st.w.GC[0].Took+st.w.GC[1].Took == 0 && st.w.GC[0].Frees+st.w.GC[1].Frees == 0
}

// isDecision reports whether a fact is part of a decision, or about a pod that only one side
// has killed.
func isDecision(s judge.Scene[*world]) bool {
	st := stepOf(s)
	if st == nil {
		return false
	}
	switch s.Fact {
	case "collections", "ranking", "kills", "escalated":
		return true
	case "picks": // our manager does not reach a choice that the kubelet makes at random
		return s.Ours == "" && strings.Contains(st.ours["kills"], ":limit")
	case "event":
		if st.ours["picks"] != "" { // our scenario ends before the event
			return s.Kubelet == st.event(st.note().Acts) && s.Ours == ""
		}
		st.decide(st.fresh(st.ours), oursAll())
		return s.Kubelet == st.event(st.note().Acts) && s.Ours == strings.Join(st.events, "\n")
	}
	if name, ok := strings.CutPrefix(s.Fact, "escalation of "); ok {
		return s.Kubelet == "" && s.Ours == st.escalation(name)
	}
	if rest, ok := strings.CutPrefix(s.Fact, "kill "); ok {
		name, _, _ := strings.Cut(rest, "/")
		return st.killed(st.kubelet, name) != st.killed(st.ours, name)
	}
	return false
}

// escalation returns the shortened termination of a pod whose kill our manager or a previous
// agent has requested.
func (st *step) escalation(name string) string {
	d := st.m.deaths[name]
	if d == nil {
		return ""
	}
	message := st.said(name)
	if message == "" {
		message = d.message
	}
	isDisruption := strings.HasPrefix(message, "The node was low")
	if slices.Contains(st.note().Adopted, name) {
		isDisruption = slices.ContainsFunc(st.m.pod(name).Pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
	}
	return fmt.Sprintf("1 s, disruption %t, %q", isDisruption, message)
}

// said returns the message with which our manager has evicted a pod before, or "" if it has
// not.
func (st *step) said(name string) (message string) {
	for _, f := range st.before {
		status := f["kill "+name+"/status"]
		status = status[strings.LastIndexByte(status, '\n')+1:]
		quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(status, "Failed Evicted "))
		if err != nil {
			continue // not evicted in this step
		}
		if message, err = strconv.Unquote(quoted); err != nil {
			panic(err)
		}
	}
	return message
}

// killed returns the entry of a pod in the list of pods that a side has killed.
func (st *step) killed(f judge.Facts, name string) string {
	for k := range strings.FieldsSeq(f["kills"]) {
		if pod, _, _ := strings.Cut(k, ":"); pod == name {
			return k
		}
	}
	return ""
}

func (st *step) kills(f judge.Facts, name string) bool { return st.killed(f, name) != "" }

// causeOf returns the quirk that causes a different decision, or -1 if the model does not
// predict both decisions.
func causeOf(s judge.Scene[*world]) quirk {
	return quirk(s.World.once(fmt.Sprint("quirk ", s.Step), func() int { return int(findQuirk(stepOf(s))) }))
}

// once caches the result of find for a key, because rules need it repeatedly.
func (w *world) once(key string, find func() int) int {
	v, ok := w.found[key]
	if !ok {
		if w.found == nil {
			w.found = map[string]int{}
		}
		v = find()
		w.found[key] = v
	}
	return v
}

func findQuirk(st *step) quirk {
	if st == nil {
		return -1
	}
	kubelet, ours := decisionOf(st.kubelet), decisionOf(st.ours)
	t := st.note().acts()
	if kubelet == ours || st.note().Blind {
		return -1
	}
	if len(t) == 0 && st.ours["picks"] == "" {
		t = st.fresh(st.ours)
	}
	if st.decide(st.note().acts(), quirks{}) != kubelet {
		return -1
	}
	if st.decide(t, oursAll()) != ours {
		return -1
	}
	for i := range numQuirks {
		if st.decide(t, oursAll().with(i, false)) != ours {
			return i
		}
	}
	for i := range numQuirks {
		if st.decide(t, quirks{}.with(i, true)) != kubelet {
			return i
		}
	}
	return -1
}

// fresh returns the thresholds on which a side may act, without twins.
func (st *step) fresh(f judge.Facts) (all []threshold) {
	for _, t := range st.w.thresholds() {
		for word := range strings.FieldsSeq(f[string(t.Signal)+"/fresh"]) {
			if strings.HasPrefix(word, t.Value+t.Grace.String()+"=") {
				all = append(all, t)
			}
		}
	}
	return st.w.withoutTwins(all)
}
