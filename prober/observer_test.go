package prober_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/prober"
)

// A metric that is deleted when its probe is removed must not be created again by a later
// call of RunFinished.
func TestObserver_RemovedIsTheLastCall(t *testing.T) {
	t.Parallel()
	var told []string
	var s *stepper
	s = newStepper(t, withProbes("app", prober.Liveness), func(c *prober.Config) {
		c.Observer.RunFinished = func(r prober.Run) {
			s.RemovePod(r.PodUID) // another goroutine may do this at the same time
			told = append(told, "probed")
		}
		c.Observer.Removed = func(prober.Key) { told = append(told, "removed") }
	})
	s.step(prober.Liveness)
	require.Equal(t, []string{"removed", "probed", "removed"}, told)
}
