// Package judge compares a manager of Kubeparts with the kubelet's own package on random
// scenarios.
//
// A [Peer] describes one comparison: how to make a world from a seed, and how each of the two
// sides plays the world. Each side gets its own world, made from the same seed, and returns
// one [Facts] for each step. [Run] compares the facts of each step. A [Rule] must explain
// each difference. A difference without a rule fails the test: Run prints the seed, and the
// smallest scenario that still has the difference.
//
// # Rules
//
// A rule is a predicate on the scenario and the difference. It has a class, one sentence, and
// the doc.go in which users find that sentence. The predicate computes our value from the
// kubelet's, or the reverse, and compares. Only a rule of class [ArbitraryOrder] may accept
// several values.
//
// testdata/NAME.json is the record of a peer: its rules, a seed for each rule on which the
// rule fires, and the figures of the last long run. Run replays these seeds. Therefore a rule
// that no longer fires fails the test.
//
// # Environment
//
//	PEER_SEED=7        play this seed alone and print the world and all facts
//	PEER_N=5000        play seeds 1 to 5000 instead of Peer.Scenarios
//	PEER_FROM=1000     begin with seed 1000
//	PEER_FRESH=20s     then play for 20 s random seeds that the last long run has played
//	PEER_SURVEY=1      count all unexplained differences by kind instead of stopping at the first
//	PEER_RECORD=1      write testdata/NAME.json: rules and their seeds
//	PEER_LONG=200000   play seeds 1 to 200000, continue where the last such run stopped, and record the figures
//	PEER_MUTANT=3      set by the mutation test: the active mutation
package judge
