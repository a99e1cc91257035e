package imagegc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

func TestCollect_BelowTheHighThresholdDeletesNothing(t *testing.T) {
	r := newRig(t, []string{"a:1 5GiB", "b:1 5GiB"})
	r.old()
	r.fill(84)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1 b:1", r.there())
	require.Zero(t, r.last.WantBytes)
	require.Empty(t, r.hooks)
}

func TestCollect_AtTheHighThresholdDeletesTheLeastRecentlyUsed(t *testing.T) {
	r := newRig(t, []string{"a:1 3GiB", "b:1 3GiB", "c:1 3GiB", "d:1 3GiB"})
	for _, name := range []string{"c:1", "a:1", "d:1", "b:1"} {
		r.use(name)
		r.clock.Step(time.Hour)
	}
	r.fill(85)
	require.NoError(t, r.collect())
	require.Equal(t, []string{"c:1 space", "a:1 space"}, removed(r.last))
	require.Equal(t, uint64(5*gib), r.last.WantBytes)
	require.Equal(t, uint64(6*gib), r.last.FreedBytes)
	require.Equal(t, "b:1 d:1", r.there())
	require.Empty(t, r.events)
}

func TestCollect_EqualLastUseIsOrderedByFirstDetection(t *testing.T) {
	r := newRig(t, []string{"b:1 3GiB"})
	r.old()
	_, err := r.node.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "a:1"}, nil, nil)
	require.NoError(t, err)
	_, podA := r.create("a:1")
	_, podB := r.create("b:1")
	r.old() // both images were last used now
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), podA))
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), podB))
	res, err := r.Free(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []string{"b:1 space"}, removed(res))
}

func TestDeleteUnusedImages_DeletesAllUnprotectedImages(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB tag=b:2", "used:1 1GiB", "pinned:1 1GiB pinned"})
	r.create("used:1")
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "pinned:1 used:1", r.there())
	require.Len(t, r.last.Removed, 2)
	require.Equal(t, uint64(2*gib), r.last.FreedBytes)

	require.NoError(t, r.DeleteUnusedImages(t.Context()), "again")
	require.Empty(t, r.last.Removed)
	require.Len(t, r.hooks, 1, "the second call must not try a deletion")
}

func TestUse_ContainersInAnyState(t *testing.T) {
	r := newRig(t, []string{"created:1 1GiB", "exited:1 1GiB"})
	r.create("created:1")
	id, sandbox := r.create("exited:1")
	require.NoError(t, r.node.StartContainer(t.Context(), id))
	require.NoError(t, r.node.StopContainer(t.Context(), id, 0))
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "created:1 exited:1", r.there())
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), sandbox))
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "created:1", r.there())
}

func TestUse_IsRememberedAfterTheContainerWasDeleted(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.use("a:1")
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	for _, v := range plan.Decisions {
		if shortName(v.Image.Tags) == "a:1" {
			require.Equal(t, r.clock.Now(), v.Image.LastUsed)
		} else {
			require.Zero(t, v.Image.LastUsed)
		}
	}
	r.old()
	_, err = r.Free(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "a:1", r.there(), "the unused image must be deleted")
}

func TestCollect_KeepsPinnedImagesUntilTheyAreUnpinned(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB pinned", "b:1 1GiB pinned", "c:1 1GiB"})
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "a:1 b:1", r.there())

	pinned := true
	m := r.manager(func(c *imagegc.Config) { c.Images = unpinned{r.node, &pinned} })
	require.NoError(t, m.Detect(t.Context()))
	r.clock.Step(time.Hour)
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, "a:1 b:1", r.there())
	pinned = false
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

// unpinned is a runtime that removes the pins on request.
type unpinned struct {
	*fakecri.Node
	pinned *bool
}

func (u unpinned) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	images, err := u.Node.ListImages(ctx, f)
	for _, img := range images {
		img.Pinned = img.Pinned && *u.pinned
	}
	return images, err
}

func TestCollect_FailedDeletionDoesNotStopOthers(t *testing.T) {
	r := newRig(t, []string{"stuck:1 6GiB", "a:1 3GiB", "b:1 3GiB", "c:1 3GiB"})
	r.old()
	require.NoError(t, r.node.Fail("RemoveImage", fakecri.Fault{Object: r.id("stuck:1"), Err: errors.New("busy")}))
	r.fill(85)
	require.NoError(t, r.collect(), "the pass must succeed, because enough was freed")
	require.Equal(t, []string{"a:1 space", "b:1 space"}, removed(r.last))
	require.EqualError(t, r.last.Failed[0].Err, "remove image docker.io/library/stuck:1: busy")

	tries := func() int { return r.calls("RemoveImage") - 2 }
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		before := tries()
		r.clock.Step(pause - 1)
		plan, err := r.Plan(t.Context())
		require.NoError(t, err)
		require.Contains(t, plan.String(), "in a row), for another")
		_, err = r.Free(t.Context(), 50*gib)
		require.Error(t, err)
		require.LessOrEqual(t, tries()-before, 1, "only c may be tried")
		before = tries()
		r.clock.Step(1)
		_, err = r.Free(t.Context(), 50*gib)
		require.ErrorContains(t, err, "busy")
		require.Equal(t, 1, tries()-before)
	}
	r.node.ClearFaults("")
	r.clock.Step(time.Hour)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

func TestCollect_NotEnoughSpaceIsAnErrorAndAnEvent(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	r.fill(95)
	const message = "Insufficient free disk space on the node's image filesystem (95% of 100.0 GiB used). " +
		"Failed to free sufficient space by deleting unused images (freed 1073741824 bytes). " +
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
	err := r.collect()
	require.EqualError(t, err, message)
	var short *imagegc.SpaceError
	require.ErrorAs(t, err, &short)
	require.Equal(t, uint64(15*gib), short.WantBytes)
	require.Equal(t, recorder{"Warning FreeDiskSpaceFailed " + message}, r.events)
	require.Equal(t, [][]string{{}}, r.hooks)

	require.Error(t, r.collect())
	require.Len(t, r.events, 1, "the event must not be repeated")
	r.clock.Step(time.Hour)
	require.Error(t, r.collect())
	require.Len(t, r.events, 2)
}

func TestCollect_NotEnoughSpaceAndAFailedDeletion(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 2GiB"})
	r.old()
	require.NoError(t, r.node.Fail("RemoveImage", fakecri.Fault{Object: r.id("b:1"), Err: errors.New("busy")}))
	r.fill(90)
	err := r.collect()
	require.ErrorContains(t, err, "wanted to free 10737418240 bytes, but freed 1073741824 bytes space with errors in image deletion: "+
		"remove image docker.io/library/b:1: busy")
	require.NotErrorAs(t, err, new(*imagegc.SpaceError), "there must be no SpaceError, because the failed image might free enough")
	require.Empty(t, r.events)
	require.Equal(t, [][]string{{r.id("b:1")}}, r.hooks, "AfterGC must be called in spite of the failure")

	err = r.collect()
	require.ErrorAs(t, err, new(*imagegc.SpaceError), "the pass must fail, because no deletion is retried within a minute")
	require.Len(t, r.events, 1)
}

func TestSpaceError_PrintsSizesInBinaryUnits(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536 * mib: "1.5 GiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		require.ErrorContains(t, &imagegc.SpaceError{CapacityBytes: bytes}, "0% of "+want+" used")
	}
}

func TestCollect_FilesystemThatCannotBeMeasured(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	r.fs.err = errors.New("no such device")
	require.EqualError(t, r.collect(), "measure image filesystem: no such device")
	plan, err := r.Plan(t.Context())
	require.ErrorContains(t, err, "no such device")
	require.Contains(t, plan.String(), "image filesystem: not measured, no space is freed")
	require.Len(t, plan.Decisions, 1, "the plan must contain the known images")
	_, err = r.Free(t.Context(), 1)
	require.ErrorContains(t, err, "no such device")
	require.Equal(t, "a:1", r.there())
	require.NoError(t, r.DeleteUnusedImages(t.Context()), "the deletion must work without a measurement")
	require.Empty(t, r.there())
}

func TestCollect_FilesystemWithoutCapacity(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	r.fs.change = func(imagegc.Usage) imagegc.Usage { return imagegc.Usage{} }
	require.ErrorIs(t, r.collect(), imagegc.ErrInvalidCapacity)
	require.Equal(t, recorder{"Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"}, r.events)
	require.Equal(t, "a:1", r.there())
}

func TestCollect_MoreAvailableThanCapacityCountsAsEmpty(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.fs.change = func(u imagegc.Usage) imagegc.Usage { u.AvailableBytes = 2 * u.CapacityBytes; return u }
	require.NoError(t, r.collect())
	require.Equal(t, r.last.After.CapacityBytes, r.last.After.AvailableBytes)
}

func TestCollect_LowThresholdReachedByRoundingDeletesNothing(t *testing.T) { // the kubelet deletes one
	r := newRig(t, []string{"a:1 1GiB"}, func(c *imagegc.Config) {
		c.Policy.HighThresholdPercent, c.Policy.LowThresholdPercent = new(85), new(85)
	})
	r.old()
	r.fill(85)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there())
}

func TestCollect_StopsByMeasurementNotBySizes(t *testing.T) { // kubernetes#120659
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB", "d:1 1GiB"})
	r.old()
	r.fill(90)
	start := r.node.DiskUsage().AvailableBytes
	r.fs.change = func(u imagegc.Usage) imagegc.Usage { // each image frees four times its reported size
		u.AvailableBytes = start + 4*(u.AvailableBytes-start)
		return u
	}
	require.NoError(t, r.collect())
	require.Len(t, r.last.Removed, 3, "3 images of 1 GiB must free 10 GiB")

	r = newRig(t, []string{"a:1 9GiB", "b:1 9GiB", "c:1 9GiB", "d:1 9GiB"})
	r.old()
	r.fill(90)
	start = r.node.DiskUsage().AvailableBytes
	r.fs.change = func(u imagegc.Usage) imagegc.Usage { // shared layers: a third of the size is freed
		u.AvailableBytes = start + (u.AvailableBytes-start)/3
		return u
	}
	require.NoError(t, r.collect())
	require.Len(t, r.last.Removed, 4, "4 images of 9 GiB must free 12 GiB")
}

func TestCollect_FailedMeasurementEndsThePass(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.old()
	_, err := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) { r.fs.err = errors.New("gone") }
	}).Free(t.Context(), 2*gib)
	require.ErrorContains(t, err, "measure image filesystem: gone")
	require.Equal(t, "b:1", r.there())
}

func TestFree(t *testing.T) {
	r := newRig(t, []string{"a:1 4GiB", "b:1 4GiB", "c:1 4GiB"})
	r.old()
	res, err := r.Free(t.Context(), 5*gib)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1 space", "b:1 space"}, removed(res))
	_, err = r.Free(t.Context(), 5*gib)
	require.ErrorAs(t, err, new(*imagegc.SpaceError))
	require.Empty(t, r.there())
	require.Empty(t, r.events, "the error must be returned to the caller, not recorded as an event")
	_, err = r.Free(t.Context(), 0)
	require.NoError(t, err)
}

// Without an FS, images are deleted only by age or by a caller.
func TestCollect_WithoutAFilesystem(t *testing.T) {
	r := newRig(t, []string{"a:1 99GiB", "b:1 512MiB"}, func(c *imagegc.Config) { c.FS, c.Policy.MaxAge = nil, 24*time.Hour })
	r.old()
	res, err := r.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, imagegc.Result{At: r.clock.Now()}, res, "a full disk must be ignored without an FS, and no image exceeds MaxAge")
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Zero(t, plan.UsedPercent)
	require.Zero(t, plan.DeleteBytes)
	require.Contains(t, plan.String(), "image filesystem: not measured, no space is freed\n0 of 2 images would be deleted")
	_, err = r.Free(t.Context(), gib)
	require.ErrorContains(t, err, "the image filesystem is not measured")
	require.Equal(t, "a:1 b:1", r.there())

	r.use("a:1")
	r.clock.Step(24*time.Hour + 1)
	r.use("a:1")
	res, err = r.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b:1 age"}, removed(res))
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

func TestAfterGC_GetsAllRemainingImages(t *testing.T) { // the kubelet omits images in use, pinned images, and those that it did not consider
	r := newRig(t, []string{"a:1 6GiB", "used:1 1GiB", "pinned:1 1GiB pinned", "spare:1 1GiB", "gone:1 1GiB"})
	r.create("used:1")
	r.old()
	require.NoError(t, r.node.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: "gone:1"}))
	r.fill(85)
	require.NoError(t, r.collect())
	left := []string{r.id("used:1"), r.id("pinned:1"), r.id("spare:1")}
	slices.Sort(left)
	require.Equal(t, [][]string{left}, r.hooks)
}

func TestAfterGC_IsCalledByTheNextPassIfTheListFails(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB pinned"})
	r.old()
	require.NoError(t, r.node.Fail("RemoveImage", fakecri.Fault{Times: 1, Delay: 1}))
	m := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) {
			require.NoError(t, r.node.Fail("ListImages", fakecri.Fault{Times: 1, Err: errors.New("restarting")}))
		}
	})
	r.node.ClearFaults("RemoveImage")
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.hooks)
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, [][]string{{r.id("b:1")}}, r.hooks)
}

func TestCollect_FailedListsDeleteNothing(t *testing.T) {
	for _, method := range []string{"ListImages", "ListContainers"} {
		r := newRig(t, []string{"a:1 1GiB"})
		r.old()
		require.NoError(t, r.node.Fail(method, fakecri.Fault{Err: grpcstatus.Error(codes.Unavailable, "restarting")}))
		require.ErrorContains(t, r.DeleteUnusedImages(t.Context()), "restarting")
		require.ErrorContains(t, r.collect(), "restarting")
		require.ErrorContains(t, r.Detect(t.Context()), "restarting")
		_, err := r.Plan(t.Context())
		require.ErrorContains(t, err, "restarting")
		r.node.ClearFaults("")
		require.Equal(t, "a:1", r.there())
		require.NoError(t, r.DeleteUnusedImages(t.Context()))
		require.Empty(t, r.there())
	}
}

func TestCollect_EmptyAnswers(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.create("a:1")
	for _, method := range []string{"ListImages", "ListContainers", "ContainerStatus"} {
		require.NoError(t, r.node.Fail(method, fakecri.Fault{Answer: fakecri.Answer{Nil: true}}))
		_ = r.DeleteUnusedImages(t.Context()) // the call may fail, or find no image to delete
		r.node.ClearFaults("")
		require.NoError(t, r.node.Fail(method, fakecri.Fault{Answer: fakecri.Answer{Bare: true}}))
		_ = r.DeleteUnusedImages(t.Context())
		r.node.ClearFaults("")
		require.Equal(t, "a:1", r.there())
		r.Images()
	}
}

func TestCollect_ReturnsWhenCancelled(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.old()
	ctx, cancel := context.WithCancel(t.Context())
	m := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) { cancel() }
	})
	_, err := m.Free(ctx, 50*gib)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "b:1", r.there())
	_, err = m.Collect(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestImages_ForTheNodeStatus(t *testing.T) {
	r := newRig(t, []string{"small:1 1MiB", "large:1 9MiB tag=large:2 tag=large:3 tag=large:4 tag=large:5 tag=large:6", "mid:1 5MiB", "mid:2 5MiB"},
		func(c *imagegc.Config) { c.MaxNodeImages = 3 })
	require.Nil(t, r.Images(), "not listed yet")
	require.NoError(t, r.Detect(t.Context()))
	images := r.Images()
	require.Len(t, images, 3)
	require.Equal(t, int64(9*mib), images[0].SizeBytes)
	require.Len(t, images[0].Names, 5)
	require.Contains(t, images[0].Names[0], "large@sha256:")
	require.Equal(t, "docker.io/library/large:1", images[0].Names[1])
	larger, smaller := "mid:1", "mid:2"
	if r.id(larger) < r.id(smaller) {
		larger, smaller = smaller, larger
	}
	require.True(t, strings.HasSuffix(images[1].Names[1], larger))
	require.True(t, strings.HasSuffix(images[2].Names[1], smaller))

	all := r.manager(func(c *imagegc.Config) { c.MaxNodeImages = -1 })
	require.NoError(t, all.Detect(t.Context()))
	require.Len(t, all.Images(), 4)
}

func TestPreference_OfTheUser(t *testing.T) { // kubernetes#68549
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB", "kept:1 1GiB", "mine:1 1GiB"}, func(c *imagegc.Config) {
		c.Preference = byName([]string{"kept:*", "mine:*"}, []string{"b:1", "c:1"})
	})
	r.old()
	res, err := r.Free(t.Context(), 2*gib)
	require.NoError(t, err)
	require.Equal(t, []string{"b:1 space", "c:1 space"}, removed(res))
	require.Equal(t, "kept:1 mine:1", r.deleteUnused())
}
