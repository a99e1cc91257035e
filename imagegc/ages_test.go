package imagegc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

func TestMinAge_CountsFromFirstDetection(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	r.clock.Step(2*time.Minute - 1)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "a:1", r.there())
	r.clock.Step(1)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

func TestMinUnused_KeepsTheImageOfAReplacedWorkload(t *testing.T) { // regression test for kubernetes#132372
	r := newRig(t, []string{"a:1 1GiB"}, func(c *imagegc.Config) { c.Policy.MinUnused = time.Hour })
	r.old()
	r.clock.Step(100 * time.Hour)
	r.use("a:1")
	r.clock.Step(time.Hour - 1)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "a:1", r.there())
	r.clock.Step(1)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

func TestMaxAge_DeletesWithoutNeedForSpaceButRespectsMinAge(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"}, func(c *imagegc.Config) { c.Policy.MaxAge = time.Minute })
	require.NoError(t, r.collect())
	require.Equal(t, "a:1 b:1", r.there(), "an image first detected in this pass must not count as infinitely old")
	_, sandbox := r.create("a:1")
	r.clock.Step(90 * time.Second)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1 b:1", r.there(), "b exceeds MaxAge, but has not reached MinAge")
	r.clock.Step(30 * time.Second)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there())
	require.Equal(t, []string{"b:1 age"}, removed(r.last))
	require.Equal(t, [][]string{{r.id("a:1")}}, r.hooks, "AfterGC must also be called after a pass for age alone")
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), sandbox))
	r.clock.Step(time.Minute)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there(), "b must be deleted after it was unused for a minute")
	r.clock.Step(1)
	require.NoError(t, r.collect())
	require.Empty(t, r.there())
}

func TestMaxAge_ZeroKeepsOldImages(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	r.clock.Step(10_000 * time.Hour)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there())
}

func TestMaxAge_FailedDeletionDoesNotStopFreeingSpace(t *testing.T) {
	r := newRig(t, []string{"stuck:1 1GiB", "a:1 8GiB"}, func(c *imagegc.Config) { c.Policy.MaxAge = 90 * time.Minute })
	r.old()
	r.use("a:1") // resets its age
	r.clock.Step(time.Hour)
	require.NoError(t, r.node.Fail("RemoveImage", fakecri.Fault{Object: r.id("stuck:1"), Err: errors.New("busy")}))
	r.fill(90)
	require.ErrorContains(t, r.collect(), "remove image docker.io/library/stuck:1: busy")
	require.Equal(t, "stuck:1", r.there())
	require.Len(t, r.last.Failed, 1)
}

func TestMaxAge_WorksWithoutAMeasurement(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"}, func(c *imagegc.Config) { c.Policy.MaxAge = time.Minute })
	r.old()
	r.fs.err = errors.New("no such device")
	require.Error(t, r.collect())
	require.Equal(t, []string{"a:1 age"}, removed(r.last))
}

func TestMinAge_CountsAtTheStartOfThePass(t *testing.T) {
	var r *rig
	r = newRig(t, []string{"old:1 1GiB"}, func(c *imagegc.Config) {
		c.Policy.MaxAge = 30 * time.Minute
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) { r.clock.Step(2 * time.Minute) }
	})
	r.old()
	_, err := r.node.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "young:1"}, nil, nil)
	require.NoError(t, err)
	r.fill(95)
	require.ErrorAs(t, r.collect(), new(*imagegc.SpaceError))
	require.Equal(t, []string{"old:1 age"}, removed(r.last), "young:1, which reached MinAge during the deletion of old:1, must be kept")
}
