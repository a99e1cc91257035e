package podcache

import (
	"slices"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// by makes a predicate: both sides have the model's results, and the cause is one of those
// that make them differ.
func by(c cause) func(judge.Scene[*World]) bool {
	return func(s judge.Scene[*World]) bool {
		if s.Step >= len(s.World.model) {
			return false
		}
		m := s.World.model[s.Step]
		return s.Ours == m.ours[s.Fact] && s.Kubelet == m.kubelet[s.Fact] && slices.Contains(m.causes[s.Fact], c)
	}
}

func rules() []judge.Rule[*World] {
	const doc = "podcache/doc.go"
	return []judge.Rule[*World]{
		{
			Name: "waiter that gives up", Class: judge.Deliberate, Doc: doc, Explains: by(waiterGaveUp),
			Sentence: "A reader of the kubelet's cache waits until there is a status; here GetNewerThan also returns when its context is done.",
		},
		{
			Name: "older status", Class: judge.Deliberate, Doc: doc, Explains: by(olderStatus),
			Sentence: "The kubelet's cache accepts a status that is older than the cached status; here Set rejects it.",
		},
		{
			Name: "older deletion", Class: judge.Deliberate, Doc: doc, Explains: by(olderDeletion),
			Sentence: "The kubelet deletes a pod even if its status is newer than the deletion; here such a deletion changes nothing.",
		},
		{
			Name: "older observation", Class: judge.Deliberate, Doc: doc, Explains: by(olderSeen),
			Sentence: "In the kubelet, an older observation or global time makes a status older again; here freshness never decreases.",
		},
		{
			Name: "older global time", Class: judge.Deliberate, Doc: doc, Explains: by(olderGlobal),
			Sentence: "In the kubelet, an older observation or global time makes a status older again; here freshness never decreases.",
		},
		{
			Name: "global time that does not speak for all", Class: judge.Deliberate, Doc: doc, Explains: by(heldBack),
			Sentence: "UpdateTime can exclude pods. In the kubelet, UpdateTime is called only after every pod was inspected, so that a pod whose inspection hangs delays all other pods.",
		},
		{
			Name: "observation of a pod that is absent", Class: judge.Deliberate, Doc: doc, Explains: by(seenAbsent),
			Sentence: "The kubelet does not record when it observed that a pod was missing; here the cache keeps that time until the global time has reached it.",
		},
		{
			Name: "deletion", Class: judge.Deliberate, Doc: doc, Explains: by(deletion),
			Sentence: "In the kubelet, a deletion leaves readers waiting until the next global time; here a deletion wakes them.",
		},
		{
			Name: "status that is just as new", Class: judge.Deliberate, Doc: doc, Explains: by(equalTime),
			Sentence: "A status is new enough if its time is at or after the requested time. In the kubelet an equal time wakes a waiter but does not satisfy a new call.",
		},
	}
}
