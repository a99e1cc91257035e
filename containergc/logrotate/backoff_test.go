package logrotate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// TestRotate_FailedCompressionDelaysNoRotation is a regression test: while the disk was full, a log grew
// for up to 5 min, because its rotation counted as failed.
func TestRotate_FailedCompressionDelaysNoRotation(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	full := true
	r := w.rotator(clock, func(f files) files { return fullDisk{f, &full} })
	for i := range 6 {
		w.write(10)
		res, err := r.Rotate(t.Context())
		require.Equal(t, 1, res.Rotated, i)
		require.Equal(t, i > 0, err != nil, "%v", err)
		clock.Step(10 * time.Second)
	}
	w.requireAll()
}
