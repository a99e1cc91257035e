//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test checks at its end that the foreign pods are unchanged. This test creates the
// situation in which an agent is most likely to change them.
func TestForeignPods_UnchangedWhenAgentRemovesItsPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	n.start()
	neighbours := n.waitRunning("web")
	before, err := live(neighbours)
	require.NoError(t, err)

	t.Run("agent", func(t *testing.T) {
		other := newNode(t)
		other.write("one.yaml", web)
		other.start("--stop-pods")
		first := bed.traces(t, other.waitRunning("web"))
		other.remove("one.yaml")
		other.waitGone(startTimeout, "web")
		bed.requireGone(t, first)

		other.write("two.yaml", web)
		second := bed.traces(t, other.waitRunning("web"))
		other.agent.stop(t)
		bed.requireGone(t, second)
		requireForeignUntouched(t)

		// An agent that starts without manifests finds only pods of others.
		other.remove("two.yaml")
		other.start("--stop-pods")
		stays(t, quiet, "the foreign pods and the neighbour's pods are unchanged", func() (string, bool) {
			requireForeignUntouched(t)
			after, err := live(neighbours)
			return after, err == nil && after == before
		})
		other.agent.stop(t)
	})
	after, err := live(neighbours)
	require.NoError(t, err)
	require.Equal(t, before, after)
}
