package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// textRules are about the texts for users about a pod that both sides have killed.
func textRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{
		{
			Name: "negative MaxPodGracePeriodSeconds", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "With a negative MaxPodGracePeriodSeconds, a pod keeps its own grace period in ours; in the kubelet it gets one second.", Ends: true,
			Explains: func(s judge.Scene[*world]) bool {
				st, name := killOf(s, "grace")
				return st != nil && st.w.MaxGrace < 0 && st.note().Acts.Grace > 0 && s.Kubelet == "1" && s.Ours == st.ownGrace(name)
			},
		},
		{
			Name: "outdated pod stats: messages", Class: judge.Deliberate, Doc: doc,
			Sentence: "The kubelet ranks pods by stats of any age; ours uses only stats up to [Policy.MaxObservationAge] old, and disk usage up to an hour old.",
			Explains: explainsOldFigures,
		},
		{
			Name: "pod stats after disk reclaim: messages", Class: judge.Deliberate, Doc: doc,
			Sentence: "The kubelet ranks pods by stats from before it reclaimed a disk, and reports these stats in messages; ours uses stats from after the reclaim.",
			Explains: explainsText,
		},
	}
}

// explainsText explains the text about a pod that both sides have evicted for the same
// threshold: our text has the figures and the time of the look that chose the pod.
func explainsText(s judge.Scene[*world]) bool {
	st, name := killOf(s, "event", "status", "annotations")
	if st == nil || st.note().Acts.Signal == "" {
		return false
	}
	t := st.note().Acts
	kubeletAt := st.collectedAt(st.kubelet)
	st.changes = st.changesBefore(st.index)
	was, wasAnnotations := st.message(name, t, st.at, (*podSpec).usage)
	at := st.at
	for _, round := range rounds(st.ours) {
		for _, a := range round {
			st.collected(st.index, a, at+st.w.collector(a).Took)
		}
		at += st.w.took(round)
		for _, o := range st.w.thresholds() { // our manager may act on another threshold of the same amount
			if resourceOf(o.Signal) != resourceOf(t.Signal) || o.Value != t.Value {
				continue
			}
			text, annotations := st.message(name, o, at, (*podSpec).recent)
			ours := strings.ReplaceAll(s.Kubelet, was, text)
			ours = strings.ReplaceAll(ours, "since "+kubeletAt.String(), "since "+at.String())
			isAnnotations := strings.HasSuffix(s.Fact, "/annotations")
			if isAnnotations && s.Kubelet == wasAnnotations && s.Ours == annotations || !isAnnotations && strings.Contains(s.Kubelet, was) && s.Ours == ours {
				return true
			}
		}
	}
	if len(rounds(st.ours)) > 0 {
		return false
	}
	// Our manager reclaimed shortly before, and does not wait.
	return s.Ours == strings.ReplaceAll(s.Kubelet, "since "+kubeletAt.String(), "since "+at.String())
}

// explainsOldFigures explains the text about a pod whose figures our manager treats as too
// old.
func explainsOldFigures(s judge.Scene[*world]) bool {
	st, name := killOf(s, "event", "status", "annotations")
	if st == nil || st.note().Acts.Signal == "" || st.m.pod(name).Age <= time.Minute {
		return false
	}
	st.changes = st.changesBefore(st.index)
	was, wasAnnotations := st.message(name, st.note().Acts, st.at, (*podSpec).usage)
	text, annotations := st.message(name, st.note().Acts, st.at, (*podSpec).recent)
	if strings.HasSuffix(s.Fact, "/annotations") {
		return s.Kubelet == wasAnnotations && s.Ours == annotations
	}
	ours := strings.ReplaceAll(s.Kubelet, was, text)
	ours = strings.ReplaceAll(ours, "since "+st.collectedAt(st.kubelet).String(), "since "+st.collectedAt(st.ours).String())
	return strings.Contains(s.Kubelet, was) && s.Ours == ours
}

// collectedAt returns when the collections of a side in this step ended.
func (st *step) collectedAt(f judge.Facts) time.Duration {
	at := st.at
	for _, round := range rounds(f) {
		at += st.w.took(round)
	}
	return at
}

// message returns the message about the eviction of a pod with the figures at a time, and the
// annotations of its event.
func (st *step) message(name string, t threshold, at time.Duration, usage func(*podSpec, time.Duration) (podUsage, bool)) (text, annotations string) {
	what := resourceOf(t.Signal)
	r, _ := st.measureAt(t.Signal, at)
	quantity := resource.NewQuantity(amount(t.Value, r.capacity), resource.BinarySI).String()
	if q, err := resource.ParseQuantity(t.Value); err == nil {
		quantity = q.String()
	}
	format := resource.BinarySI
	if what == "pids" || what == "inodes" {
		format = resource.DecimalSI
	}
	text = fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", what, quantity, resource.NewQuantity(r.available, format))
	p := st.m.pod(name)
	u, ok := usage(p, at)
	if !ok {
		return text, ""
	}
	all := map[string]string{"starved_resource": what}
	if whole := p.Pod.Spec.Resources; whole != nil && what == "memory" && u.Memory != nil {
		if asked, ok := whole.Requests[corev1.ResourceMemory]; ok {
			used := resource.NewQuantity(*u.Memory, resource.BinarySI).String()
			text += fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of memory. ", name, used, asked.String())
			all["offending_pod"], all["offending_pod_usage"] = name, used
		}
	}
	var names, usages []string
	for _, c := range u.Containers {
		used := int64(-1)
		switch {
		case what == "memory" && c.Memory != nil:
			used = *c.Memory
		case what == "ephemeral-storage" && c.Rootfs != nil && c.Logs != nil:
			used = c.Rootfs.Bytes + c.Logs.Bytes
		}
		for _, spec := range slices.Concat(p.Pod.Spec.Containers, p.Pod.Spec.InitContainers) {
			if asked := spec.Resources.Requests[corev1.ResourceName(what)]; spec.Name == c.Name && asked.CmpInt64(used) < 0 {
				amount := resource.NewQuantity(used, resource.BinarySI).String()
				text += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, amount, asked.String(), what)
				names, usages = append(names, c.Name), append(usages, amount)
			}
		}
	}
	all["offending_containers"], all["offending_containers_usage"] = strings.Join(names, ","), strings.Join(usages, ",")
	return text, annotationsText(all)
}

// killOf returns the pod that a fact is about, if both sides have killed it.
func killOf(s judge.Scene[*world], parts ...string) (*step, string) {
	st := stepOf(s)
	rest, ok := strings.CutPrefix(s.Fact, "kill ")
	if st == nil || !ok {
		return nil, ""
	}
	name, part, _ := strings.Cut(rest, "/")
	if !st.kills(st.kubelet, name) || !st.kills(st.ours, name) {
		return nil, ""
	}
	if slices.Contains(parts, part) {
		return st, name
	}
	return nil, ""
}

func (st *step) ownGrace(name string) string {
	if own := st.m.pod(name).Pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return fmt.Sprint(max(*own, 1))
	}
	return "30"
}
