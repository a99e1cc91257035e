package conformance

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
)

// Test checks a runtime. Each check is a subtest with its own pods, which it removes.
// Checks run in parallel, except checks that read events. Other objects on the runtime are
// not changed, except the image Options.PullImage. Test calls dial once. The connection must
// stay open until the end of the test that dial gets as its argument.
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
	t.Logf("%d checks, %d skipped: %v", len(checks()), len(o.Skip), o.Skip)
}

// Checks returns the names of all checks, which are the names of the subtests, in order.
func Checks() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// check is one check. The probe ends the check when an expectation is not met.
type check struct {
	name string
	run  func(*probe)
	// alone means that no other check runs at the same time.
	alone bool
}

func checks() []check {
	return slices.Concat(
		nodeChecks(), sandboxChecks(), containerChecks(), stopChecks(),
		listChecks(), imageChecks(), execChecks(), eventChecks(), statsChecks(),
	)
}
