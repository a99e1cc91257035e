// Package judge compares a manager of Kubeparts with the kubelet's own package on
// random scenarios.
//
// A [Peer] describes one comparison: how to make a world from a seed, and how each
// of the two sides plays it. Each side gets a world of its own, made from the same
// seed, and returns one [Facts] for each step. [Run] compares the facts of each
// step. Each difference must be explained by a [Rule]. A difference without a rule
// fails the test: Run prints the seed, and the smallest scenario that still has
// the difference.
//
// # Rules
//
// A rule is a predicate on the scenario and the difference. It has a class, one
// sentence, and the doc.go where users find that sentence. The predicate computes
// our value from the kubelet's, or the reverse, and compares. Only a rule of class
// [ArbitraryOrder] may accept several values.
//
// testdata/NAME.json is the record of a peer: its rules, for each a seed on which it
// fires, and the figures of the last long run. Run replays these seeds, so a rule
// that no longer fires fails the test.
//
// # Environment
//
//	PEER_SEED=7        play this seed alone and print the world and all facts
//	PEER_N=5000        play seeds 1 to 5000 instead of Peer.Scenarios
//	PEER_FROM=1000     begin there
//	PEER_FRESH=20s     then play, for this long, seeds drawn from those that the last long run played
//	PEER_SURVEY=1      count all unexplained differences by kind instead of stopping at the first
//	PEER_RECORD=1      write testdata/NAME.json: rules and their seeds
//	PEER_LONG=200000   play seeds 1 to 200000, continue where the last such run stopped, and record the figures
//	PEER_MUTANT=3      set by the mutation test: the mutation that is switched on
package judge
