package imagegc_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/imagegc"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// ago is some minutes before noon.
func ago(minutes int) time.Time { return noon().Add(-time.Duration(minutes) * time.Minute) }

func TestPlanDeletions_ReasonsThatProtectAnImage(t *testing.T) {
	policy := imagegc.Policy{MinUnused: 30 * time.Minute, MaxAge: time.Hour}
	old := imagegc.Image{ID: "x", SizeBytes: 1, FirstDetected: ago(600), LastUsed: ago(500)}
	for _, tc := range []struct {
		reason imagegc.Reason
		until  time.Time
		change func(*imagegc.Image)
	}{
		{imagegc.ReasonInUse, time.Time{}, func(i *imagegc.Image) { i.Containers = 1 }},
		{imagegc.ReasonPinned, time.Time{}, func(i *imagegc.Image) { i.Pinned = true }},
		{imagegc.ReasonSandbox, time.Time{}, func(i *imagegc.Image) { i.Tags = []string{"registry.k8s.io/pause:3.10"} }},
		{imagegc.ReasonLeased, ago(-5), func(i *imagegc.Image) { i.LeasedBy, i.LeasedUntil = []string{"me"}, ago(-5) }},
		{imagegc.ReasonKept, time.Time{}, func(i *imagegc.Image) { i.Preference = imagegc.Keep }},
		{imagegc.ReasonNoID, time.Time{}, func(i *imagegc.Image) { i.ID = "" }},
		{imagegc.ReasonYoung, ago(-1), func(i *imagegc.Image) { i.FirstDetected, i.LastUsed = ago(1), time.Time{} }},
		{imagegc.ReasonRecent, ago(-20), func(i *imagegc.Image) { i.LastUsed = ago(10) }},
		{imagegc.ReasonBackoff, ago(-3), func(i *imagegc.Image) { i.Failures, i.RetryAt = 2, ago(-3) }},
	} {
		t.Run(string(tc.reason), func(t *testing.T) {
			img := old
			tc.change(&img)
			for _, goal := range []imagegc.Goal{{}, {Aged: true}, {Bytes: math.MaxUint64}, {All: true}, {Aged: true, All: true}} {
				v := imagegc.PlanDeletions(noon(), []imagegc.Image{img}, policy, goal)
				require.Equal(t, []imagegc.Decision{{Image: img, Reason: tc.reason, Until: tc.until}}, v)
			}
		})
	}
	v := imagegc.PlanDeletions(noon(), []imagegc.Image{old}, policy, imagegc.Goal{Aged: true})
	require.Equal(t, []imagegc.Decision{{Image: old, Delete: true, Reason: imagegc.ReasonAge}}, v)
	v = imagegc.PlanDeletions(noon(), []imagegc.Image{old}, policy, imagegc.Goal{Bytes: 1})
	require.Equal(t, imagegc.ReasonSpace, v[0].Reason)
	v = imagegc.PlanDeletions(noon(), []imagegc.Image{old}, policy, imagegc.Goal{})
	require.Equal(t, []imagegc.Decision{{Image: old, Reason: imagegc.ReasonNotNeeded}}, v)
}

func TestPlanDeletions_ReasonsEndExactlyAtUntil(t *testing.T) {
	img := imagegc.Image{ID: "x", FirstDetected: noon()}
	due := func(at time.Time, policy imagegc.Policy) bool {
		return imagegc.PlanDeletions(at, []imagegc.Image{img}, policy, imagegc.Goal{All: true})[0].Delete
	}
	require.False(t, due(noon().Add(2*time.Minute-1), imagegc.Policy{}))
	require.True(t, due(noon().Add(2*time.Minute), imagegc.Policy{}), "MinAge has passed")
	img.LastUsed = noon().Add(time.Minute)
	require.False(t, due(noon().Add(6*time.Minute-1), imagegc.Policy{MinUnused: 5 * time.Minute}))
	require.True(t, due(noon().Add(6*time.Minute), imagegc.Policy{MinUnused: 5 * time.Minute}))
}

func TestPlanDeletions_Order(t *testing.T) {
	images := []imagegc.Image{
		{ID: "used lately", LastUsed: ago(10), FirstDetected: ago(600)},
		{ID: "used long ago", LastUsed: ago(300), FirstDetected: ago(400)},
		{ID: "never used, new", FirstDetected: ago(100)},
		{ID: "never used, old", FirstDetected: ago(200)},
		{ID: "never used, old, large", FirstDetected: ago(200), SizeBytes: 5},
		{ID: "preferred", LastUsed: ago(5), FirstDetected: ago(10), Preference: imagegc.Prefer},
		{ID: "same", RuntimeHandler: "b", LastUsed: ago(10), FirstDetected: ago(600)},
		{ID: "same", RuntimeHandler: "a", LastUsed: ago(10), FirstDetected: ago(600)},
	}
	want := []string{
		"preferred", "never used, old, large", "never used, old", "never used, new", "used long ago", "same a", "same b", "used lately",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		rng.Shuffle(len(images), func(i, j int) { images[i], images[j] = images[j], images[i] })
		var got []string
		for _, v := range imagegc.PlanDeletions(noon(), images, imagegc.Policy{}, imagegc.Goal{}) {
			got = append(got, v.Image.ID+ifSet(" ", v.Image.RuntimeHandler))
		}
		require.Equal(t, want, got)
	}
}

func ifSet(space, s string) string {
	if s == "" {
		return ""
	}
	return space + s
}

// randomImages returns images in all possible states.
func randomImages(rng *rand.Rand) []imagegc.Image {
	images := make([]imagegc.Image, rng.IntN(30))
	for i := range images {
		img := imagegc.Image{ID: fmt.Sprint("id", i), SizeBytes: rng.Uint64N(100), FirstDetected: ago(rng.IntN(6))}
		if rng.IntN(2) == 0 {
			img.LastUsed = ago(rng.IntN(6))
		}
		switch rng.IntN(10) {
		case 0:
			img.Containers = 1 + rng.IntN(3)
		case 1:
			img.Pinned = true
		case 2:
			img.LeasedBy, img.LeasedUntil = []string{"x"}, ago(-1)
		case 3:
			img.Preference = imagegc.Keep
		case 4:
			img.Preference = imagegc.Prefer
		case 5:
			img.RetryAt = ago(-rng.IntN(3))
		case 6:
			img.SizeBytes = math.MaxUint64 - 3
		}
		images[i] = img
	}
	return images
}

func chosen(decisions []imagegc.Decision) []string {
	ids := []string{}
	for _, v := range decisions {
		if v.Delete {
			ids = append(ids, v.Image.ID)
		}
	}
	return ids
}

func TestPlanDeletions_Properties(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		images := randomImages(rng)
		policy := imagegc.Policy{
			MinAge: new(time.Duration(rng.IntN(4)) * time.Minute), MinUnused: time.Duration(rng.IntN(3)) * time.Minute,
		}
		if rng.IntN(2) == 0 {
			policy.MaxAge = policy.MinUnused + time.Minute
		}
		goal := imagegc.Goal{Aged: rng.IntN(2) == 0, Bytes: rng.Uint64N(800), All: rng.IntN(8) == 0}
		got := imagegc.PlanDeletions(noon(), images, policy, goal)
		require.Len(t, got, len(images), "seed %d", seed)

		var freed uint64
		for i, v := range got {
			if !v.Delete {
				continue
			}
			img := v.Image
			require.True(t, i == 0 || got[i-1].Delete, "deleted images must come first, seed %d", seed)
			require.Zero(t, img.Containers, "seed %d", seed)
			require.False(t, img.Pinned || len(img.LeasedBy) > 0 || img.Preference == imagegc.Keep, "seed %d", seed)
			require.GreaterOrEqual(t, noon().Sub(img.FirstDetected), *policy.MinAge, "seed %d", seed)
			require.False(t, img.RetryAt.After(noon()), "seed %d", seed)
			if !img.LastUsed.IsZero() {
				require.GreaterOrEqual(t, noon().Sub(img.LastUsed), policy.MinUnused, "seed %d", seed)
			}
			if v.Reason == imagegc.ReasonSpace && !goal.All {
				require.Less(t, freed, goal.Bytes, "no more than necessary must be deleted, seed %d", seed)
			}
			if freed += img.SizeBytes; freed < img.SizeBytes {
				freed = math.MaxUint64
			}
		}

		more := goal
		more.Bytes += rng.Uint64N(200)
		wider := chosen(imagegc.PlanDeletions(noon(), images, policy, more))
		require.Equal(t, chosen(got), wider[:len(chosen(got))], "a larger goal must only add deletions, seed %d", seed)

		shuffled := slices.Clone(images)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, got, imagegc.PlanDeletions(noon(), shuffled, policy, goal), "the order of the input must not matter, seed %d", seed)

		left := slices.DeleteFunc(shuffled, func(i imagegc.Image) bool { return slices.Contains(chosen(got), i.ID) })
		again := imagegc.PlanDeletions(noon(), left, policy, imagegc.Goal{Aged: goal.Aged, All: goal.All})
		require.Empty(t, chosen(again), "a second plan must be empty, seed %d", seed)
	}
}

func TestPlanDeletions_MaxAgeAndAnImageFirstSeenInThisPass(t *testing.T) { // the kubelet deletes it
	img := imagegc.Image{ID: "x", FirstDetected: noon()}
	v := imagegc.PlanDeletions(noon(), []imagegc.Image{img}, imagegc.Policy{MaxAge: time.Minute}, imagegc.Goal{Aged: true})
	require.Equal(t, imagegc.ReasonYoung, v[0].Reason)
	v = imagegc.PlanDeletions(noon(), []imagegc.Image{img}, imagegc.Policy{MinAge: new(time.Duration(0)), MaxAge: time.Minute}, imagegc.Goal{Aged: true})
	require.Equal(t, imagegc.ReasonNotNeeded, v[0].Reason, "an image that was never used, and has just been detected")
	v = imagegc.PlanDeletions(noon().Add(time.Minute+1), []imagegc.Image{img}, imagegc.Policy{MinAge: new(time.Duration(0)), MaxAge: time.Minute}, imagegc.Goal{Aged: true})
	require.Equal(t, imagegc.ReasonAge, v[0].Reason)
}
