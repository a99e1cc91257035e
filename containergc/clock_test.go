package containergc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc"
)

func TestMinAge_ClockThatIsSetBackMakesNoContainerYoungForEver(t *testing.T) {
	b := newBed(t, func(c *containergc.Config) { c.Policy.MinAge = hour })
	b.StepClock(1000 * hour)
	b.dead("web", "app", 0)
	b.StepClock(-1000 * hour)
	b.set("web", "gone")
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.left(), "web/app#0")
	b.clock.Step(61 * time.Minute)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.NotContains(t, b.left(), "web/app#0")
}

// The clock may be years ahead at first, and be set back later.
func TestMinAge_ClockThatIsSetBackAfterTheFirstPass(t *testing.T) {
	b := newBed(t, func(c *containergc.Config) { c.Policy.MinAge = hour })
	b.clock.Step(1000 * hour)
	b.dead("web", "app", 0)
	require.NoError(t, b.KillSandbox(b.boxes["web"]))
	b.set("web", "gone")
	m := b.manager()
	for _, step := range []time.Duration{0, -1000 * hour, time.Minute, hour} {
		b.clock.Step(step)
		_, err := m.Collect(t.Context())
		require.NoError(t, err)
	}
	require.Empty(t, b.left(), "the container and the sandbox must be removed")
}
