// Package eventlog stores the last events of an agent in memory. Readers can follow the
// events.
//
// # What it does
//
// [Log.AnnotatedEventf] and [Log.Add] add an event. If an equal event was added within
// [Config].Window, the log stores both as one event with a higher count and a new number.
// [Log.After] returns the events after a number. The channel of [Log.Changed] is closed when the
// next event is added. [Log.About] returns the events about one object.
//
// # What you supply
//
// You need to supply nothing. A Log is both the event recorder of an agent and the Events of a
// kubeletapi.Config:
//
//	events := eventlog.New(eventlog.Config{})
//	a, err := agent.New(agent.Config{Events: events, …})
//	…
//	s, err := kubeletapi.New(kubeletapi.Config{Agent: a, Events: events})
//
// # What it guarantees
//
//  1. Adding an event never waits for a reader. The log has no queue for a reader: a reader passes
//     the number of the last event that it has read. If events are deleted before a slow reader has
//     read them, After reports this to the reader.
//  2. The number increases by one with each added event. Events are ordered by their numbers.
//  3. Memory is limited by [Config].Size.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods may be called concurrently.
//
// # Differences from the kubelet
//
//   - The kubelet sends its events to the API server and does not store them. Ours stores its
//     events in memory and does not send them.
//   - The kubelet drops events that exceed a rate limit. Ours has no rate limit; a full log deletes
//     its oldest event.
//   - Ours counts only equal events as one. The kubelet also combines similar events.
//
// # Testing your code with it
//
// Set [Config].Clock to a fake clock for deterministic times. After(0) returns all events.
package eventlog
