package nodestatus_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

func TestDue(t *testing.T) {
	t.Parallel()
	first := nodestatus.Next(nil, well(), start())
	for name, c := range map[string]struct {
		change func(*corev1.NodeStatus)
		age    time.Duration
		want   bool
	}{
		"nothing new":                     {func(*corev1.NodeStatus) {}, 5*time.Minute - 1, false},
		"the period is over":              {func(*corev1.NodeStatus) {}, 5 * time.Minute, true},
		"a transition":                    {func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime.Time = start().Add(time.Second) }, 0, true},
		"a message":                       {func(s *corev1.NodeStatus) { s.Conditions[3].Message = "x" }, 0, true},
		"the order":                       {func(s *corev1.NodeStatus) { slices.Reverse(s.Conditions) }, 0, false},
		"one condition less":              {func(s *corev1.NodeStatus) { s.Conditions = s.Conditions[1:] }, 0, true},
		"an amount":                       {func(s *corev1.NodeStatus) { s.Capacity = list("cpu", "1") }, 0, true},
		"an empty list":                   {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{} }, 0, false},
		"another form of the same amount": {func(s *corev1.NodeStatus) { s.Capacity["cpu"] = list("x", "4000m")["x"] }, 0, false},
		"an image":                        {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{{SizeBytes: 1}} }, 0, true},
		"volumes of a driver":             {func(s *corev1.NodeStatus) { s.VolumesInUse = []corev1.UniqueVolumeName{"v"} }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start().Add(10 * time.Second)
			next := nodestatus.Next(first, well(), now)
			c.change(next)
			require.Equal(t, c.want, nodestatus.ReportDue(first, next, now.Add(-c.age), now, nodestatus.ReportPeriod))
		})
	}
	require.True(t, nodestatus.ReportDue(nil, first, start(), start(), time.Hour))
	require.False(t, nodestatus.ReportDue(nil, nil, start(), start(), time.Hour))
	require.True(t, nodestatus.ReportDue(first, first, time.Time{}, start(), time.Hour), "before the first report, a report must be due")
}

func TestDue_ModifiesNothing(t *testing.T) {
	t.Parallel()
	first := nodestatus.Next(nil, well(), start())
	slices.Reverse(first.Conditions)
	kept := first.DeepCopy()
	nodestatus.ReportDue(first, first.DeepCopy(), start(), start(), time.Hour)
	require.Equal(t, kept, first)
}

func TestAttempts_Next(t *testing.T) {
	t.Parallel()
	period := nodestatus.RenewInterval(40 * time.Second)
	require.Equal(t, 10*time.Second, period)
	require.Zero(t, nodestatus.Attempts{}.Next(period), "the first call is due at once")
	for failed, wait := range map[int]time.Duration{0: period, 1: 0, 4: 0, 5: period, 6: 0, 10: period} {
		a := nodestatus.Attempts{Last: start(), Failed: failed}
		require.Equal(t, start().Add(wait), a.Next(period), "after %d failures", failed)
	}
}

// TestAttempts_CallsOfAnOutage checks how many calls are made while each call fails at once.
func TestAttempts_CallsOfAnOutage(t *testing.T) {
	t.Parallel()
	calls := map[time.Duration]int{}
	a := nodestatus.Attempts{Last: start()}
	for range 15 {
		now := a.Next(10 * time.Second)
		calls[now.Sub(start())]++
		a = nodestatus.Attempts{Last: now, Failed: a.Failed + 1}
	}
	require.Equal(t, map[time.Duration]int{10 * time.Second: 5, 20 * time.Second: 5, 30 * time.Second: 5}, calls)
}
