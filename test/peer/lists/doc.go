// Package lists contains lists of the names in the kubelet that a user can refer to,
// extracted from the kubelet's own packages: the paths and methods of its server, its metrics
// with type and labels, the reasons of its events, its flags, the fields of its
// configuration, and the feature gates that it reads. Each entry has our verdict:
//
//	yes              we have it too
//	no: REASON       we do not have it
//	planned: WHAT    it belongs to a part that does not exist yet
//
// A list is a file in testdata, with an entry and its verdict on each line. The test extracts
// each list again. It fails on
//
//   - an entry without a verdict, and a verdict for an entry that no longer exists,
//   - an entry that our code has and whose verdict is not "yes",
//   - a "yes" for an entry that our code does not have.
//
// With PEER_REWRITE=1 it writes the files: it keeps the verdicts, removes deleted entries and
// writes "?" as the verdict of new entries.
//
// The test finds the paths of our side by requests to agent/kubeletapi. It reads metrics,
// event reasons and flags from the source code, and the fields of the configuration from the
// types of agent/kubeletconfig. A feature gate is a "yes" if we behave as the kubelet does with
// the gate at its default. This test does not check that; the comparisons do.
package lists
