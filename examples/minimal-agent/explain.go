package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/describe"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// manyEvents is more than a pod has while it ends.
const manyEvents = 50

// explain says why a pod is in its state, and what comes next. A name may leave out
// the node's, which static pods have behind theirs.
func (a *agent) explain(ctx context.Context, namespace, name string) (api.Explanation, error) {
	pod, desired := a.findPod(namespace, name)
	problems := a.problemsOf(name)
	switch {
	case pod == nil && len(problems) > 0:
		return api.Explanation{
			Pod:  api.Pod{Namespace: namespace, Name: name, State: "NoGoodManifest", Containers: []api.Container{}},
			Why:  problems,
			Next: []api.Step{{What: "it starts when its manifest is put right"}},
		}, nil
	case pod == nil:
		return api.Explanation{}, notFound("there is no pod %q in namespace %q, and no manifest of one", name, namespace)
	}
	q := describe.Question{
		Facts: a.podFacts(pod, a.usage(ctx)), Now: time.Now(), Problems: problems,
		Desired: desired, Refused: a.isRejected(pod.UID), Waiting: a.runner.Waiting(pod.UID),
		Restarts: map[string]time.Time{}, Pulls: map[string]time.Time{}, Signals: a.signals(),
	}
	if err := a.runtime.get(); err != nil {
		q.Runtime = err.Error()
	}
	if err := a.sourceReady(); err != nil {
		q.Ready = err.Error()
	}
	observed, err := a.cache.Get(pod.UID)
	if err != nil {
		return api.Explanation{}, err
	}
	q.Plan = a.planOf(pod, observed)
	a.delays(&q, observed)
	q.Due, _ = a.deadline.Due(pod)
	if q.Terminating {
		q.EndsBy = a.endsBy(pod)
	}
	e, _ := a.answers.pressure.get(ctx) // what is not known has no place in the order
	q.Ranks = map[eviction.Signal][]eviction.Candidate{}
	for _, s := range q.Signals {
		signal := eviction.Signal(s.Name)
		q.Ranks[signal] = eviction.Rank(signal, a.state.last().Next, e.facts, a.policy, time.Now())
	}
	return describe.Explain(q), nil
}

// findPod returns a pod with its newest status, and whether a manifest asks for it; nil
// if there is none.
func (a *agent) findPod(namespace, name string) (pod *corev1.Pod, desired bool) {
	for _, full := range []string{name, name + "-" + a.opts.nodeName} {
		if p, ok := a.pods.GetPodByName(namespace, full); ok {
			return a.withStatus(p), true
		}
		for _, p := range a.podsLeaving() {
			if p.Namespace == namespace && p.Name == full {
				return p, false
			}
		}
	}
	return nil, false
}

// endsBy is when a pod that is being ended has had its grace, by when its containers
// were told; zero if they were not.
func (a *agent) endsBy(pod *corev1.Pod) time.Time {
	for _, e := range a.events.ring.About("Pod", pod.Namespace, pod.Name, manyEvents) {
		if e.Reason == lifecycle.Killing {
			grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
			return e.Time.Add(time.Duration(grace) * time.Second)
		}
	}
	return time.Time{}
}

// problemsOf are those problems of manifests that are in a file of the pod's name, or
// quote it: what the name of a manifest that can't be read was to be is not known.
func (a *agent) problemsOf(name string) (lines []string) {
	name = strings.TrimSuffix(name, "-"+a.opts.nodeName)
	for _, p := range a.manifestProblems() {
		file := filepath.Base(p.File)
		if strings.TrimSuffix(file, filepath.Ext(file)) == name || strings.Contains(p.Err.Error(), strconv.Quote(name)) {
			lines = append(lines, p.Error())
		}
	}
	return lines
}

// planOf is what the next turn of the pod's worker would do in the runtime.
func (a *agent) planOf(pod *corev1.Pod, observed *podcache.Status) string {
	if a.isLeaving(pod.UID) || a.workers.IsPodTerminationRequested(pod.UID) || a.isRejected(pod.UID) {
		return ""
	}
	return podrunner.Plan(podrunner.Input{
		Pod: pod, Status: observed, Backoff: a.backoff.Until, Probes: a.probes.results,
	}).String()
}

// delays finds the times that containers and their images wait for.
func (a *agent) delays(q *describe.Question, observed *podcache.Status) {
	pulls := map[string]time.Time{}
	for _, s := range a.pullBackoff.Snapshot() {
		at := s.Started
		if s.Ended.After(at) {
			at = s.Ended
		}
		if image, ok := imageOf(q.Pod.UID, s.Key); ok {
			pulls[image] = at.Add(s.Delay)
		}
	}
	for name := range q.Waiting {
		c := podspec.Container(&q.Pod.Spec, name)
		if c == nil {
			continue
		}
		for image, at := range pulls {
			if strings.HasPrefix(image, c.Image) && at.After(q.Now) {
				q.Pulls[name] = at
			}
		}
		last := observed.Container(name)
		if last == nil {
			continue
		}
		if until, _, waiting := a.backoff.Until(podrunner.RestartKey(q.Pod, c), time.Unix(0, last.GetFinishedAt())); waiting {
			q.Restarts[name] = until
		}
	}
}

// imageOf returns the image that a key of the back-off of pulls is about.
func imageOf(uid types.UID, key string) (string, bool) {
	return strings.CutPrefix(key, string(uid)+"_")
}
