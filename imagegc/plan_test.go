package imagegc_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func TestPlan_DeletesNothing(t *testing.T) {
	r := newRig(t, []string{"a:1 9GiB", "b:1 9GiB"}, func(c *imagegc.Config) { c.Policy.MaxAge = time.Minute })
	r.old()
	r.fill(95)
	for range 3 {
		plan, err := r.Plan(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(18*gib), plan.DeleteBytes)
	}
	require.Equal(t, "a:1 b:1", r.there())
	require.Zero(t, r.calls("RemoveImage"))
	require.Empty(t, r.events)
	require.Empty(t, r.hooks)
}

func TestPlan_MatchesCollectIfSizesAreExact(t *testing.T) {
	for percent := range uint64(20) {
		r := newRig(t, []string{"a:1 3GiB", "b:1 5GiB", "c:1 7GiB", "d:1 11GiB"})
		r.create("b:1")
		r.old()
		r.fill(80 + percent)
		plan, err := r.Plan(t.Context())
		require.NoError(t, err)
		var would []string
		for _, v := range plan.Decisions {
			if v.Delete {
				would = append(would, shortName(v.Image.Tags)+" "+string(v.Reason))
			}
		}
		_ = r.collect()
		require.Equal(t, would, removed(r.last), "disk usage of %d%%", 80+percent)
		require.Equal(t, plan.WantBytes, r.last.WantBytes)
	}
}

func TestPlan_RoundTripsThroughJSON(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB"}, func(c *imagegc.Config) {
		c.Preference = byName([]string{"b:*"}, []string{"c:*"})
	})
	r.old()
	r.Acquire("a:1", "me", time.Hour)
	r.fill(90)
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	data, err := json.Marshal(plan)
	require.NoError(t, err)
	for _, part := range []string{
		`"usedPercent":90`, `"wantBytes":10737418240`, `"preference":"keep"`, `"preference":"prefer"`,
		`"delete":true,"reason":"space"`, `"leasedBy":["me"]`, `"until":"2026-01-02T05:04:05Z"`,
	} {
		require.Contains(t, string(data), part)
	}
	require.NotContains(t, string(data), "0001-01-01", "unknown times must be omitted")
	var again imagegc.Plan
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, plan.String(), again.String())
}

func TestPlan_EmptyNodeAndImagesWithoutNames(t *testing.T) {
	r := newRig(t, nil)
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(plan.String(), "\n"))
	require.Equal(t, "x", imagegc.Image{ID: "x"}.Name())
	require.Equal(t, "web@sha256:1", imagegc.Image{ID: "x", Digests: []string{"web@sha256:1"}}.Name())
}

func TestPlan_StringPrintsOneLinePerImage(t *testing.T) {
	t.Parallel()
	const hostile = "x\nremove forged\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"
	plan := imagegc.Plan{Usage: imagegc.Usage{CapacityBytes: 1}, Decisions: []imagegc.Decision{
		{Image: imagegc.Image{ID: hostile, Containers: 1}, Reason: imagegc.ReasonInUse},
		{Image: imagegc.Image{Tags: []string{"a\tb"}, LeasedBy: []string{hostile}}, Reason: imagegc.ReasonLeased},
	}}
	lines := strings.Split(plan.String(), "\n")
	require.Len(t, lines, 3+1+2+1, plan)
	for _, line := range lines[4:6] {
		require.True(t, strings.HasPrefix(line, "keep "), line)
	}
	for _, line := range lines {
		require.Equal(t, printable.Line(line), line)
	}
	require.Contains(t, lines[5], "a b")
}
