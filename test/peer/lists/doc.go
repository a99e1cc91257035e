// Package lists has what a user of the kubelet can name, taken from the kubelet's own
// packages: the paths and methods of its server, its metrics with type and labels, the
// reasons of its events, its flags, the fields of its configuration, and the feature
// gates that it reads. Each entry has our verdict:
//
//	yes              ours has it too
//	no: REASON       ours does without
//	planned: WHAT    it belongs to a part that does not exist yet
//
// A list is a file in testdata, with an entry and its verdict on a line. The test takes
// each list anew and fails on an entry without a verdict, on a verdict for an entry
// that is gone, on an entry that ours has without a "yes", and on a "yes" for what our
// code does not have. With PEER_REWRITE=1 it writes the files: it keeps the verdicts,
// removes entries that are gone and writes new ones with "?" for a verdict.
//
// Our side is read from the source: the literals of the HTTP server, the exporter and
// the flags of examples/minimal-agent, the constants of the managers, and the fields
// that its configuration has. A feature gate is a "yes" where ours behaves as the
// kubelet does with the gate at its default; that is not checked by this test, but by
// the comparisons.
package lists
