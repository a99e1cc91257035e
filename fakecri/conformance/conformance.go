package conformance

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
)

// Test checks a runtime, each check as a subtest with pods of its own, which are
// removed again. Checks run in parallel, except those that read events. What else
// the runtime holds is not touched. dial is called once; its connection is to stay
// until the end of the test it gets.
func Test(t *testing.T, dial func(testing.TB) grpc.ClientConnInterface, o Options) {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatalf("conformance: invalid options: %v", err)
	}
	o = o.withDefaults()
	conn := dial(t)
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if reason := o.Skip[c.name]; reason != "" {
				t.Skipf("NOT CHECKED, by Options.Skip: %s", reason)
			}
			if !c.alone {
				t.Parallel()
			}
			c.run(newProbe(t, conn, o))
		})
	}
	t.Logf("%d checks, of which %d are skipped: %v", len(checks()), len(o.Skip), o.Skip)
}

// Checks returns the names of all checks, which are those of the subtests, in
// their order.
func Checks() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// check is one thing that must be so. It ends early, by the probe, when it is
// not.
type check struct {
	name string
	run  func(*probe)
	// alone means that no other check runs meanwhile.
	alone bool
}

func checks() []check {
	return slices.Concat(
		nodeChecks(), sandboxChecks(), containerChecks(), stopChecks(),
		listChecks(), imageChecks(), execChecks(), eventChecks(), statsChecks(),
	)
}
