package eviction_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/eviction"
)

type settings = map[string]string

// texts prints thresholds in the format of the kubelet's tests.
func texts(all []eviction.Threshold) (out []string) {
	for _, t := range all {
		s := t.String()
		if t.MinReclaim != (eviction.Value{}) {
			s += " +" + t.MinReclaim.String()
		}
		out = append(out, s)
	}
	return out
}

func TestParseThresholds(t *testing.T) {
	t.Parallel()
	none := []string{}
	for _, tt := range []struct {
		name string
		in   eviction.ThresholdSettings
		want []string
	}{
		{"without settings, the kubelet's defaults apply", eviction.ThresholdSettings{}, []string{
			"memory.available<100Mi (hard)", "nodefs.available<10% (hard)", "nodefs.inodesFree<5% (hard)",
			"imagefs.available<15% (hard)", "imagefs.inodesFree<5% (hard)", "allocatableMemory.available<100Mi (hard)",
		}},
		{"windows has other defaults", eviction.ThresholdSettings{GOOS: "windows", EnforceNodeAllocatable: none}, []string{
			"memory.available<500Mi (hard)", "nodefs.available<10% (hard)", "imagefs.available<15% (hard)",
		}},
		{"other systems have no inode thresholds", eviction.ThresholdSettings{GOOS: "darwin", EnforceNodeAllocatable: none}, []string{
			"memory.available<100Mi (hard)", "nodefs.available<10% (hard)", "imagefs.available<15% (hard)",
		}},
		{"an empty map means no thresholds", eviction.ThresholdSettings{EvictionHard: settings{}}, nil},
		{"any setting replaces all defaults", eviction.ThresholdSettings{EvictionHard: settings{"pid.available": "1k"}}, []string{"pid.available<1k (hard)"}},
		{
			"unless defaults are merged",
			eviction.ThresholdSettings{EvictionHard: settings{"pid.available": "100", "nodefs.available": "0%"}, MergeDefaultEvictionSettings: true, EnforceNodeAllocatable: none},
			[]string{
				"memory.available<100Mi (hard)", "pid.available<100 (hard)", "nodefs.inodesFree<5% (hard)",
				"imagefs.available<15% (hard)", "imagefs.inodesFree<5% (hard)",
			},
		},
		{
			"everything at once",
			eviction.ThresholdSettings{
				EvictionHard:            settings{"memory.available": "150Mi", "imagefs.available": "2.5%"},
				EvictionSoft:            settings{"memory.available": "300Mi", "nodefs.available": "20%"},
				EvictionSoftGracePeriod: settings{"memory.available": "30s", "nodefs.available": "1m30s"},
				EvictionMinimumReclaim:  settings{"memory.available": "0", "imagefs.available": "5%", "nodefs.available": "1Gi"},
			},
			[]string{
				"memory.available<150Mi (hard)", "imagefs.available<2.5% (hard) +5%",
				"memory.available<300Mi (soft, 30s)", "nodefs.available<20% (soft, 1m30s) +1Gi",
				"allocatableMemory.available<150Mi (hard)",
			},
		},
		{
			"0% and 100% switch off",
			eviction.ThresholdSettings{
				EvictionHard: settings{"memory.available": "0%", "nodefs.available": "100%"},
				EvictionSoft: settings{"imagefs.available": "100%"}, EvictionMinimumReclaim: settings{"memory.available": "1Mi"},
			},
			nil,
		},
		{
			"the minimum reclaim goes with the copy for allocatable memory",
			eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "1Gi"}, EvictionMinimumReclaim: settings{"memory.available": "10%"}},
			[]string{"memory.available<1Gi (hard) +10%", "allocatableMemory.available<1Gi (hard) +10%"},
		},
		{
			"allocatable memory can be set where nothing is copied",
			eviction.ThresholdSettings{EvictionHard: settings{"allocatableMemory.available": "1Gi"}, EnforceNodeAllocatable: none},
			[]string{"allocatableMemory.available<1Gi (hard)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(tt.in.EvictionHard)
			got, err := eviction.ParseThresholds(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.want, texts(got))
			require.Equal(t, before, tt.in.EvictionHard, "the input must not be modified")
			tt.in.Lenient = true
			lenient, err := eviction.ParseThresholds(tt.in)
			require.NoError(t, err)
			require.Equal(t, got, lenient, "valid input must have the kubelet's meaning")
			require.NoError(t, eviction.Policy{Thresholds: got}.Validate())
		})
	}
}

// The kubelet also rejects these inputs, but reports only the first problem.
func TestParseThresholds_RefusesWhatTheKubeletRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		in         eviction.ThresholdSettings
	}{
		{"a hard signal that does not exist", "field evictionHard[mem.available]: unsupported eviction signal mem.available", eviction.ThresholdSettings{EvictionHard: settings{"mem.available": "1"}}},
		{"a soft signal that does not exist", "field evictionSoft[x]: unsupported eviction signal x", eviction.ThresholdSettings{EvictionSoft: settings{"x": "1"}}},
		{"a grace period for a signal that does not exist", "field evictionSoftGracePeriod[x]: unsupported eviction signal x", eviction.ThresholdSettings{EvictionSoftGracePeriod: settings{"x": "1s"}}},
		{"a minimum reclaim for a signal that does not exist", "field evictionMinimumReclaim[x]: unsupported eviction signal x", eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"x": "1"}}},
		{"a negative amount", "eviction threshold memory.available must be positive: -150Mi", eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "-150Mi"}}},
		{"an amount of zero", "eviction threshold memory.available must be positive: 0", eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "0"}}},
		{"an amount with a huge exponent", "the exponent of \"1e-1000000000\" is out of range", eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "1e-1000000000"}}},
		{"not an amount", `field evictionHard[memory.available]: "much" is not an amount`, eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "much"}}},
		{"not a percentage", `"x%" is not a percentage`, eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "x%"}}},
		{"no grace period", "field evictionSoft[memory.available]: grace period must be specified for the soft eviction threshold memory.available", eviction.ThresholdSettings{EvictionSoft: settings{"memory.available": "1Gi"}}},
		{"a negative grace period", "invalid eviction grace period specified: -1s, must be a positive value", eviction.ThresholdSettings{EvictionSoft: settings{"memory.available": "1Gi"}, EvictionSoftGracePeriod: settings{"memory.available": "-1s"}}},
		{"not a duration", `"soon" is not a duration`, eviction.ThresholdSettings{EvictionSoft: settings{"memory.available": "1Gi"}, EvictionSoftGracePeriod: settings{"memory.available": "soon"}}},
		{"a negative minimum reclaim", "negative eviction minimum reclaim specified for memory.available", eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"memory.available": "-1"}}},
		{"a minimum reclaim of 0%", "eviction percentage minimum reclaim memory.available must be positive: 0%", eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"memory.available": "0%"}}},
		{"a minimum reclaim that is not an amount", `"%" is not a percentage`, eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"memory.available": "%"}}},
		{"more than 100%", "eviction percentage threshold memory.available must be <= 100%: 101%", eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "101%"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, tt.in.Lenient = range []bool{false, true} {
				got, err := eviction.ParseThresholds(tt.in)
				require.ErrorContains(t, err, tt.want)
				require.Nil(t, got)
			}
		})
	}
	_, err := eviction.ParseThresholds(eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "-5%"}, Lenient: true})
	require.ErrorContains(t, err, "must be >= 0%")
}

// The kubelet accepts all of these inputs.
func TestParseThresholds_RefusesOddInput(t *testing.T) {
	t.Parallel()
	memory := func(s string) eviction.ThresholdSettings {
		return eviction.ThresholdSettings{EvictionHard: settings{"memory.available": s}}
	}
	gentle := func(value, grace string) eviction.ThresholdSettings {
		return eviction.ThresholdSettings{
			EvictionHard: settings{"memory.available": "1Gi", "nodefs.available": "10%"}, EnforceNodeAllocatable: []string{},
			EvictionSoft: settings{"memory.available": value}, EvictionSoftGracePeriod: settings{"memory.available": grace},
		}
	}
	for _, tt := range []struct {
		name, want, lenient string
		in                  eviction.ThresholdSettings
	}{
		{"100.0%", "use 0% for no threshold", "memory.available<100% (hard)", memory("100.0%")},
		{"100%%", "is not a percentage", "memory.available<100% (hard)", memory("100%%")},
		{"0.0%", "use 0% for no threshold", "", memory("0.0%")},
		{"-0%", "is not a percentage", "", memory("-0%")},
		{"NaN%", "is not a percentage", "", memory("NaN%")},
		{"1e1%", "is not a percentage", "memory.available<10% (hard)", memory("1e1%")},
		{"+5%", "is not a percentage", "memory.available<5% (hard)", memory("+5%")},
		{"0x1p3%", "is not a percentage", "memory.available<8% (hard)", memory("0x1p3%")},
		{"10%%", "is not a percentage", "memory.available<10% (hard)", memory("10%%")},
		{"half a byte", "is not a whole number", "memory.available<500m (hard)", memory("500m")},
		{"soft for 0s", "a grace period of 0 makes the threshold hard", "memory.available<2Gi (hard)", gentle("2Gi", "0s")},
		{"soft below hard", "field evictionSoft[memory.available]: 512Mi is not above the hard threshold 1Gi", "memory.available<512Mi (soft, 1m0s)", gentle("512Mi", "1m")},
		{"soft equal to hard", "1Gi is not above the hard threshold 1Gi", "memory.available<1Gi (soft, 1m0s)", gentle("1Gi", "1m")},
		{"a grace period without a threshold", "field evictionSoftGracePeriod[pid.available]: this signal has no soft threshold", "", eviction.ThresholdSettings{EvictionSoftGracePeriod: settings{"pid.available": "1m"}}},
		{"a minimum reclaim without a threshold", "field evictionMinimumReclaim[pid.available]: this signal has no threshold", "", eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"pid.available": "10"}}},
		{"a minimum reclaim of 300%", "300% of the capacity can never be available", "+300%", eviction.ThresholdSettings{EvictionMinimumReclaim: settings{"memory.available": "300%"}}},
		{"a minimum reclaim out of reach", "field evictionMinimumReclaim[nodefs.available]: 90% above the threshold 10% can never be available", "nodefs.available<10% (hard) +90%", eviction.ThresholdSettings{
			EvictionHard: settings{"nodefs.available": "10%"}, EvictionMinimumReclaim: settings{"nodefs.available": "90%"},
		}},
		{"containerfs", "field evictionHard[containerfs.available]: cannot be set", "containerfs.available<10% (hard)", eviction.ThresholdSettings{EvictionHard: settings{"containerfs.available": "10%"}}},
		{"allocatable memory twice", `cannot be set with "pods"`, "allocatableMemory.available<1Gi (hard)", eviction.ThresholdSettings{EvictionHard: settings{"allocatableMemory.available": "1Gi"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := eviction.ParseThresholds(tt.in)
			require.ErrorContains(t, err, tt.want)
			tt.in.Lenient = true
			got, err := eviction.ParseThresholds(tt.in)
			require.NoError(t, err)
			require.Contains(t, strings.Join(texts(got), "\n"), tt.lenient)
		})
	}
}

func TestParseThresholds_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := eviction.ParseThresholds(eviction.ThresholdSettings{
		EvictionHard: settings{"memory.available": "NaN%", "b": "1", "a": "1"}, EvictionSoft: settings{"nodefs.available": "10%"},
		EvictionMinimumReclaim: settings{"pid.available": "-3"},
	})
	require.EqualError(t, err, strings.Join([]string{
		`field evictionHard[a]: unsupported eviction signal a`,
		`field evictionHard[b]: unsupported eviction signal b`,
		`field evictionHard[memory.available]: "NaN%" is not a percentage such as 10% or 2.5%`,
		`field evictionSoft[nodefs.available]: grace period must be specified for the soft eviction threshold nodefs.available`,
		`field evictionMinimumReclaim[pid.available]: negative eviction minimum reclaim specified for pid.available`,
		`field evictionMinimumReclaim[pid.available]: this signal has no threshold`,
	}, "\n"))
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	got, err := eviction.ParseThresholdFlag("memory.available<100Mi, nodefs.available < 10%,,")
	require.NoError(t, err)
	require.Equal(t, settings{"memory.available": "100Mi", "nodefs.available": "10%"}, got)
	got, err = eviction.ParseSettingFlag("memory.available=1m30s")
	require.NoError(t, err)
	require.Equal(t, settings{"memory.available": "1m30s"}, got)
	_, err = eviction.ParseThresholdFlag("memory.available=100Mi,a<1,a<2")
	require.EqualError(t, err, "malformed pair \"memory.available=100Mi\", expect string<string\na is set twice")
	got, err = eviction.ParseSettingFlag("")
	require.NoError(t, err)
	require.Empty(t, got)
}

// The kubelet multiplies a float64 with a float32. This package must compute the same amounts.
func TestValue_AmountsEqualTheKubelets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text           string
		capacity, want int64
	}{
		{"100Mi", 0, 100 << 20},
		{"10%", 10, 1},
		{"10%", 1_000_000_000_000, 100000001490},
		{"5%", 1000, 50},
		{"15%", 1 << 40, 164926750720},
	} {
		all, err := eviction.ParseThresholds(eviction.ThresholdSettings{EvictionHard: settings{"nodefs.available": tt.text}})
		require.NoError(t, err)
		require.Equal(t, tt.want, all[0].Value.Of(tt.capacity), "%s of %d", tt.text, tt.capacity)
	}
}

func FuzzParseThresholds(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "NaN%", "1e400%", "-1", "1m", "0x1p3%", "99999999999999999999", "100.0%", "%", "92E7000000000000000"} {
		f.Add(s, s, "1m", s)
	}
	f.Fuzz(func(t *testing.T, hard, soft, grace, reclaim string) {
		in := eviction.ThresholdSettings{
			EvictionHard:            settings{"memory.available": hard},
			EvictionSoft:            settings{"memory.available": soft},
			EvictionSoftGracePeriod: settings{"memory.available": grace},
			EvictionMinimumReclaim:  settings{"memory.available": reclaim},
		}
		strict, err := eviction.ParseThresholds(in)
		in.Lenient = true
		lenient, lenientErr := eviction.ParseThresholds(in)
		if err == nil {
			require.NoError(t, lenientErr, "input that lenient parsing rejects must be rejected by strict parsing")
			require.Equal(t, lenient, strict)
			require.NoError(t, eviction.Policy{Thresholds: strict}.Validate())
		}
		for _, th := range slices.Concat(strict, lenient) {
			require.GreaterOrEqual(t, th.GracePeriod, time.Duration(0))
			require.NotEmpty(t, th.String())
			require.GreaterOrEqual(t, th.Value.Of(gi), int64(0))
		}
	})
}

func FuzzParseFlag(f *testing.F) {
	f.Add("memory.available<100Mi,nodefs.available<10%")
	f.Fuzz(func(t *testing.T, s string) {
		all, err := eviction.ParseThresholdFlag(s)
		require.True(t, err == nil || all == nil)
		_, _ = eviction.ParseSettingFlag(s)
	})
}

// TestParseThresholds_LenientAmounts checks that amounts that are not 64-bit integers are
// parsed and printed as in the kubelet.
func TestParseThresholds_LenientAmounts(t *testing.T) {
	t.Parallel()
	parsed := func(s eviction.ThresholdSettings) (eviction.Threshold, error) {
		s.EnforceNodeAllocatable, s.Lenient = []string{}, true
		all, err := eviction.ParseThresholds(s)
		if len(all) == 0 {
			return eviction.Threshold{}, err
		}
		return all[0], err
	}
	for _, tt := range []struct {
		text string
		want int64
		as   string
	}{{"1500m", 2, "1500m"}, {"0.3Gi", 322122548, "322122547200m"}, {"1e99", math.MaxInt64, "1e99"}, {"8Ei", math.MaxInt64, "9223372036854775807"}, {"1e3", 1000, "1e3"}} {
		got, err := parsed(eviction.ThresholdSettings{
			EvictionHard: settings{"memory.available": tt.text}, EvictionMinimumReclaim: settings{"memory.available": tt.text},
		})
		require.NoError(t, err, tt.text)
		require.Equal(t, tt.want, got.Value.Of(0), tt.text)
		require.Equal(t, "memory.available<"+tt.as+" (hard)", got.String())
		require.Equal(t, got.Value, got.MinReclaim)
		n := newNode(t)
		n.add(newPod("a"), eviction.PodStats{UID: "uid-a", Memory: used(1)})
		message, _ := messageOf(t, got, memoryIs(0), n)
		require.Equal(t, "The node was low on resource: memory. Threshold quantity: "+tt.as+", available: 0. ", message)
	}
	_, err := parsed(eviction.ThresholdSettings{EvictionHard: settings{"memory.available": "-1e99"}})
	require.ErrorContains(t, err, "must be positive")

	got, err := parsed(eviction.ThresholdSettings{
		EvictionHard: settings{"memory.available": "1Gi"}, EvictionMinimumReclaim: settings{"memory.available": "NaN%"},
	})
	require.NoError(t, err)
	require.Zero(t, got.MinReclaim)

	for _, amount := range []string{"0.0%", "NaN%"} {
		soft := eviction.ThresholdSettings{EvictionHard: settings{}, EvictionSoft: settings{"memory.available": amount}}
		_, err = parsed(soft)
		require.ErrorContains(t, err, "grace period must be specified for the soft eviction threshold memory.available")
		soft.EvictionSoftGracePeriod = settings{"memory.available": "1s"}
		got, err = parsed(soft)
		require.NoError(t, err)
		require.Zero(t, got)
	}
}
