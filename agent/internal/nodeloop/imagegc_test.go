package nodeloop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// bigImages returns images of 1Gi each.
func bigImages(names ...string) (all []fakecri.Image) {
	for _, name := range names {
		all = append(all, fakecri.Image{Name: name, SizeBytes: gib})
	}
	return all
}

// pull pulls an image through the loop.
func (b *bed) pull(t *testing.T, name string) {
	t.Helper()
	_, err := b.Images().PullImage(t.Context(), &runtimeapi.ImageSpec{Image: name}, nil, nil)
	require.NoError(t, err)
}

// aged returns a policy that deletes each image that was not used for an hour.
func aged() imagegc.Policy { return imagegc.Policy{MaxAge: time.Hour} }

func TestImageGC_KeepsImagesThatTheAgentHasNotPulled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takeOver bool
		left     []string
	}{
		"of a shared runtime": {false, []string{"docker.io/demo/app:1", "docker.io/demo/loaded:1", "docker.io/demo/others:1"}},
		"of its own runtime":  {true, []string{"docker.io/demo/app:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, bigImages("demo/app:1", "demo/others:1")...)
				b.cfg.TakeOver, b.cfg.ImageGC = c.takeOver, aged()
				b.run(t, "web") // runs demo/app:1
				b.start(t)
				b.pull(t, "demo/own:1")
				b.pull(t, "demo/others:1") // with the pull policy Always, although the image is present
				_, err := b.node.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "demo/loaded:1"}, nil, nil)
				require.NoError(t, err)
				require.Len(t, b.images(t), 4)
				wait(2 * time.Hour)
				require.ElementsMatch(t, c.left, b.images(t))
				require.Empty(t, b.check(t, "images").Notes)
			})
		})
	}
}

func TestImageGC_LeasedImagesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.ImageGC = aged()
		b.start(t)
		b.pull(t, "demo/own:1")
		release := b.Leases().Acquire("demo/own:1", "pod", 24*time.Hour)
		wait(2 * time.Hour)
		require.Contains(t, b.images(t), "docker.io/demo/own:1")
		release()
		wait(10 * time.Minute)
		require.NotContains(t, b.images(t), "docker.io/demo/own:1")
	})
}

// A failed pass adds a note to the check, and does not make the check fail, because the pass is
// repeated.
func TestImageGC_FailedPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, b.node.Fail("ListImages", fakecri.Fault{Err: errors.New("busy")}))
		b.start(t)
		require.Len(t, b.check(t, "images").Notes, 1)
		require.Contains(t, b.check(t, "images").Notes[0], "the last pass failed: ")
		require.NoError(t, b.check(t, "images").Err)
		_, err := b.Plan(t.Context())
		require.ErrorContains(t, err, "plan the deletion of images: ")
		b.node.ClearFaults("ListImages")
		wait(10 * time.Minute)
		require.Empty(t, b.check(t, "images").Notes)
	})
}

// The runtime is not called for the images of containers that the pod loop has observed.
func TestImageGC_RequestsOnlyContainersOfOtherAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		_, container := b.run(t, "web")
		b.start(t)
		wait(2 * time.Minute)
		b.pods.change(func(p *fakePods) { p.hidden = true })
		before := len(b.calls("ContainerStatus"))
		_, other := b.run(t, "other")
		wait(5 * time.Minute)
		require.NotEqual(t, container, other)
		require.Len(t, b.calls("ContainerStatus"), before+1, "ContainerStatus must be called only for the container of another agent")
		require.Contains(t, b.images(t), "docker.io/demo/app:1")
	})
}

// deletable returns which of the images would be deleted.
func deletable(t *testing.T, b *bed) (names []string) {
	t.Helper()
	plan, err := b.Plan(t.Context())
	require.NoError(t, err)
	for _, v := range plan.Images.Decisions {
		if v.Reason != imagegc.ReasonKept {
			names = append(names, v.Image.Tags...)
		}
	}
	wait(2 * time.Second) // plans are reused for a second
	return names
}

func TestPuller_RemembersOverRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, bigImages("demo/app:1")...)
		stop := b.start(t)
		require.Empty(t, deletable(t, b))
		b.pull(t, "demo/own:1")
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b))
		stop()
		data, err := b.cfg.State.Get(t.Context(), "images-pulled.json")
		require.NoError(t, err)
		require.Regexp(t, `^{"version":1,"data":{"sha256:[0-9a-f]{64}":true}}$`, string(data), "the file must have the format of earlier agents")

		stop = b.start(t)
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b))
		stop()

		require.NoError(t, b.cfg.State.Put(t.Context(), "images-pulled.json", []byte("{")))
		b.make(t)
		b.pull(t, "demo/another:1") // before Run: the saved record is loaded first
		require.Equal(t, 1, b.log.count("could not read the record of pulled images"))
		require.Equal(t, []string{"docker.io/demo/another:1"}, deletable(t, b), "images without a record must be protected as those of other programs")
	})
}

// Another program changes the images that names refer to in the runtime.
func TestPuller_ImagesPulledByOtherPrograms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		name := &runtimeapi.ImageSpec{Image: "demo/tool:1"}
		answer, err := b.Images().ImageStatus(t.Context(), name, false)
		require.NoError(t, err)
		require.Nil(t, answer.GetImage())
		_, err = b.node.PullImage(t.Context(), name, nil, nil) // by another client, while the agent's pull is queued
		require.NoError(t, err)
		b.pull(t, "demo/tool:1")
		require.Empty(t, deletable(t, b), "an image that another client has pulled must be protected")

		b.pull(t, "demo/own:1")
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b))
		own := &runtimeapi.ImageSpec{Image: "demo/own:1"}
		require.NoError(t, b.node.RemoveImage(t.Context(), own))
		wait(2 * time.Minute) // the next list does not contain it
		_, err = b.node.PullImage(t.Context(), own, nil, nil)
		require.NoError(t, err)
		require.Empty(t, deletable(t, b), "an image that was pulled again by another client must be protected")
	})
}

func TestPuller_OneStatusRequestPerPull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.make(t)
		b.pull(t, "demo/own:1")
		b.pull(t, "demo/own:1")
		require.Len(t, b.calls("ImageStatus"), 2)
		require.Len(t, b.calls("PullImage"), 2)

		require.NoError(t, b.node.Fail("ImageStatus", fakecri.Fault{Times: 1, Err: errors.New("busy")}))
		_, err := b.Images().PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "demo/own:1"}, nil, nil)
		require.EqualError(t, err, "get status of image demo/own:1 before its pull: busy")
		require.NoError(t, b.node.Fail("PullImage", fakecri.Fault{Times: 1, Err: errors.New("no such image")}))
		_, err = b.Images().PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "demo/unknown:1"}, nil, nil)
		require.EqualError(t, err, "no such image")
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b))
	})
}

// readOnly is a store whose writes fail.
type readOnly struct{ state.Store }

func (readOnly) Put(context.Context, string, []byte) error {
	return errors.New("read-only file system")
}

func TestPuller_RecordCannotBeSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.State = readOnly{state.Memory()}
		b.start(t)
		b.pull(t, "demo/own:1")
		require.Equal(t, 1, b.log.count("could not save the record of pulled images"))
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b), "the record in memory must be used although it cannot be saved")
	})
}

// A list of one image does not mean that the others were removed.
func TestPuller_ListWithFilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.make(t)
		b.pull(t, "demo/own:1")
		require.NoError(t, b.node.Fail("ListImages", fakecri.Fault{Times: 1, Answer: fakecri.Answer{Keep: new(0)}}))
		_, err := b.Images().ListImages(t.Context(), &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: "demo/app:1"}})
		require.NoError(t, err)
		require.Equal(t, []string{"docker.io/demo/own:1"}, deletable(t, b))
	})
}
