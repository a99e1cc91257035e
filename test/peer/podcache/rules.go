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
			Name: "GetNewerThan with a cancelled context", Class: judge.Deliberate, Doc: doc, Explains: by(waiterGaveUp),
			Sentence: "A reader of the kubelet's cache waits until the status is new enough; here GetNewerThan also returns when its context is done.",
		},
		{
			Name: "Set with an older status", Class: judge.Deliberate, Doc: doc, Explains: by(olderStatus),
			Sentence: "The kubelet's cache accepts a status that is older than the cached status; here Set rejects it.",
		},
		{
			Name: "Delete older than the status", Class: judge.Deliberate, Doc: doc, Explains: by(olderDeletion),
			Sentence: "The kubelet deletes a pod even if its status is newer than the deletion; here such a deletion changes nothing.",
		},
		{
			Name: "SetObservedTime with an older time", Class: judge.Deliberate, Doc: doc, Explains: by(olderSeen),
			Sentence: "In the kubelet, an older observation or global time makes a status older again; here freshness never decreases.",
		},
		{
			Name: "UpdateTime with an older time", Class: judge.Deliberate, Doc: doc, Explains: by(olderGlobal),
			Sentence: "In the kubelet, an older observation or global time makes a status older again; here freshness never decreases.",
		},
		{
			Name: "UpdateTime with excluded pods", Class: judge.Deliberate, Doc: doc, Explains: by(heldBack),
			Sentence: "Here UpdateTime can exclude pods. The kubelet calls UpdateTime only after it has inspected every changed pod, so a pod whose inspection hangs delays all other pods.",
		},
		{
			Name: "SetObservedTime for an absent pod", Class: judge.Deliberate, Doc: doc, Explains: by(seenAbsent),
			Sentence: "The kubelet does not record when it observed that a pod was missing; here the cache keeps that time until the global time has reached it.",
		},
		{
			Name: "waiters woken by a deletion", Class: judge.Deliberate, Doc: doc, Explains: by(deletion),
			Sentence: "In the kubelet, a deletion leaves readers waiting until the next global time; here a deletion wakes them.",
		},
		{
			Name: "GetNewerThan with an equal time", Class: judge.Deliberate, Doc: doc, Explains: by(equalTime),
			Sentence: "Here a status is new enough if its time is at or after the requested time. In the kubelet an equal time wakes a waiter but does not satisfy a new call.",
		},
	}
}
