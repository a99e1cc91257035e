//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// figure prints a figure in the form that `make bench-report` reads. It fails the test if the
// value exceeds most, unless most is 0: some figures depend on the load of the machine and
// are only printed.
func figure(t *testing.T, name string, value float64, unit string, most float64) {
	t.Helper()
	t.Logf("figure: %s %.4g %s", name, value, unit)
	if most > 0 {
		require.LessOrEqual(t, value, most, "%s, in %s", name, unit)
	}
}
