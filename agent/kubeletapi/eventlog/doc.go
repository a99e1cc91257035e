// Package eventlog stores the last events of an agent in memory. Readers can follow them.
//
// # What it does
//
// [Log.AnnotatedEventf] and [Log.Add] add an event. An event that repeats within the window is
// counted and moves to the end with a new number. [Log.After] returns the events after a
// number, [Log.Changed] waits for the next event, and [Log.About] returns the events about one
// object.
//
// # What you supply
//
// Nothing is required. A Log is an event recorder for an agent, and the Events of a
// kubeletapi.Config:
//
//	events := eventlog.New(eventlog.Config{})
//	a, err := agent.New(agent.Config{Events: events, …})
//	…
//	s, err := kubeletapi.New(kubeletapi.Config{Agent: a, Events: events})
//
// # What it guarantees
//
//  1. Adding an event never waits for a reader. A reader has no queue, only a number: After
//     reports to a slow reader that events were deleted before it has read them.
//  2. Numbers increase by one with each event. Events are ordered by their numbers.
//  3. Memory is limited by [Config].Size.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods may be called concurrently.
//
// # Differences from the kubelet
//
//   - The kubelet sends its events to the API server and does not store them.
//   - No event is dropped by a rate limit. A full log deletes the oldest event.
//   - Only equal events are counted as one. The kubelet also combines similar ones.
//
// # Testing your code with it
//
// A Log with a fake clock in [Config].Clock is deterministic. Read it with After(0).
package eventlog
