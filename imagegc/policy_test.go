package imagegc_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

func TestPolicy_ValidationHasTheKubeletsMessages(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy imagegc.Policy
		want   string
	}{
		{"the zero policy is the kubelet's default", imagegc.Policy{}, ""},
		{"the minimum and the maximum", imagegc.Policy{HighThresholdPercent: new(100), LowThresholdPercent: new(0)}, ""},
		{"both at the maximum", imagegc.Policy{HighThresholdPercent: new(100), LowThresholdPercent: new(100)}, ""},
		{"both equal", imagegc.Policy{HighThresholdPercent: new(0), LowThresholdPercent: new(0)}, ""},
		{
			"high threshold too high",
			imagegc.Policy{HighThresholdPercent: new(101)},
			"invalid HighThresholdPercent 101, must be in range [0-100]",
		},
		{
			"high threshold too low",
			imagegc.Policy{HighThresholdPercent: new(-1), LowThresholdPercent: new(0)},
			"invalid HighThresholdPercent -1, must be in range [0-100]\n" +
				"LowThresholdPercent 0 can not be higher than HighThresholdPercent -1",
		},
		{
			"low threshold too low",
			imagegc.Policy{LowThresholdPercent: new(-1)},
			"invalid LowThresholdPercent -1, must be in range [0-100]",
		},
		{
			"low threshold too high",
			imagegc.Policy{LowThresholdPercent: new(101)},
			"invalid LowThresholdPercent 101, must be in range [0-100]\n" +
				"LowThresholdPercent 101 can not be higher than HighThresholdPercent 85",
		},
		{
			"low above high",
			imagegc.Policy{HighThresholdPercent: new(1), LowThresholdPercent: new(2)},
			"LowThresholdPercent 2 can not be higher than HighThresholdPercent 1",
		},
		{"MaxAge below MinAge is a wish like any other", imagegc.Policy{MinAge: new(time.Hour), MaxAge: time.Minute}, ""},
		{
			"MaxAge that MinUnused never lets happen",
			imagegc.Policy{MinUnused: time.Hour, MaxAge: time.Hour},
			"MaxAge 1h0m0s must be longer than MinUnused 1h0m0s",
		},
		{
			"negative ages",
			imagegc.Policy{MinAge: new(-time.Second), MinUnused: -1, MaxAge: -time.Hour},
			"invalid MinAge -1s, must not be negative\ninvalid MinUnused -1ns, must not be negative\ninvalid MaxAge -1h0m0s, must not be negative",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.policy.Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	_, err := imagegc.New(imagegc.Config{
		Node: &corev1.Node{}, Period: -1, DetectPeriod: -1, EventPeriod: -1,
		Policy: imagegc.Policy{LowThresholdPercent: new(90)},
	})
	for _, part := range []string{
		"imagegc: invalid config: ",
		"field Images is required", "field Runtime is required",
		"fields Events and Node must be set together",
		"field Period: -1ns is negative", "field DetectPeriod: -1ns is negative",
		"field EventPeriod: -1ns is negative",
		"LowThresholdPercent 90 can not be higher than HighThresholdPercent 85",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestConfig_OptionalFieldsMayBeZero(t *testing.T) {
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages()})
	require.NoError(t, err)
	m, err := imagegc.New(imagegc.Config{Images: node, Runtime: node, FS: &nodeFS{node: node}})
	require.NoError(t, err)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.DeleteUnusedImages(t.Context()), "all images are younger than MinAge")
	_, err = m.Plan(t.Context())
	require.NoError(t, err)
}

func TestPercent_IsRoundedUp(t *testing.T) {
	for _, tc := range []struct {
		capacity, available uint64
		want                int
	}{
		{100, 100, 0},
		{100, 20, 80},
		{100, 0, 100},
		{1000, 199, 81},
		{1000, 200, 80},
		{1000, 209, 80},
		{1000, 5000, 0},
		{0, 0, 100},
		{0, 5, 100},
		{3, 1, 67},
		{math.MaxUint64, math.MaxUint64, 0},
		{math.MaxUint64, math.MaxUint64 / 2, 51},
		{math.MaxUint64, 0, 100},
	} {
		u := imagegc.Usage{CapacityBytes: tc.capacity, AvailableBytes: tc.available}
		require.Equal(t, tc.want, u.Percent(), u)
	}
}
