package fakecri_test

import (
	"context"
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// withRegistry configures a node in a bubble that can pull images with two
// layers. The images share one layer.
func withRegistry(pull fakecri.Pull) func(*fakecri.Config) {
	base := fakecri.Layer{Name: "base", SizeBytes: 30 << 20}
	return func(c *fakecri.Config) {
		c.Clock, c.Images = nil, nil
		c.Disk = fakecri.Disk{CapacityBytes: 64 << 20, Inodes: 1e6}
		c.Registry = []fakecri.Image{
			{Name: "app:1", Layers: []fakecri.Layer{base, {Name: "one", SizeBytes: 10 << 20}}, Pull: pull},
			{Name: "app:2", Layers: []fakecri.Layer{base, {Name: "two", SizeBytes: 20 << 20}}, Pull: pull},
			{Name: "huge:1", SizeBytes: 65 << 20},
		}
	}
}

// pull pulls an image, and returns the duration of the pull.
func (b *bed) pull(name string, auth *runtimeapi.AuthConfig) (time.Duration, error) {
	b.t.Helper()
	begin := time.Now()
	_, err := b.PullImage(b.t.Context(), spec(name), auth, nil)
	return time.Since(begin), err
}

func TestPullImage_TakesTimeForMissingLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{Delay: time.Second, BytesPerSecond: 10 << 20}))
		for _, tc := range []struct {
			name string
			took time.Duration
		}{{"app:1", 5 * time.Second}, {"app:2", 3 * time.Second}, {"app:2", time.Second}} {
			took, err := b.pull(tc.name, nil)
			require.NoError(t, err)
			require.Equal(t, tc.took, took)
		}
		require.EqualValues(t, 40<<20, b.image("app:1").GetSize())
	})
}

func TestPullImage_CancelledPullAddsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{Delay: time.Minute}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.PullImage(ctx, spec("app:1"), nil, nil)
		requireCode(t, codes.DeadlineExceeded, err)
		time.Sleep(time.Hour)
		require.Nil(t, b.image("app:1"))

		done := make(chan error, 1)
		go func() {
			_, err := b.pull("app:1", nil)
			done <- err
		}()
		synctest.Wait()
		b.Restart(0)
		requireCode(t, codes.Unavailable, <-done)
		require.Nil(t, b.image("app:1"))
	})
}

func TestPullImage_RequiresValidCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{Username: "me", Password: "secret", Delay: time.Second}))
		encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		for name, tc := range map[string]struct {
			auth *runtimeapi.AuthConfig
			ok   bool
		}{
			"none":           {nil, false},
			"wrong":          {&runtimeapi.AuthConfig{Username: "me", Password: "public"}, false},
			"right":          {&runtimeapi.AuthConfig{Username: "me", Password: "secret"}, true},
			"encoded":        {&runtimeapi.AuthConfig{Auth: encode("me:secret")}, true},
			"wrongly so":     {&runtimeapi.AuthConfig{Auth: encode("me:public")}, false},
			"not encoded":    {&runtimeapi.AuthConfig{Auth: "me:secret"}, false},
			"somebody's own": {&runtimeapi.AuthConfig{Username: "you", Password: "secret"}, false},
		} {
			took, err := b.pull("app:1", tc.auth)
			if tc.ok {
				require.NoError(t, err, name)
				require.Equal(t, time.Second, took, name)
				continue
			}
			requireCode(t, codes.Unknown, err, "pull access denied", "authorization failed")
			require.Zero(t, took, name)
		}
	})
}

func TestPullImage_Error(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{Delay: time.Second, Error: "manifest unknown"}))
		took, err := b.pull("app:1", nil)
		requireCode(t, codes.Unknown, err, `failed to pull and unpack image "docker.io/library/app:1": manifest unknown`)
		require.Equal(t, time.Second, took)
		require.Nil(t, b.image("app:1"))
	})
}

func TestPullImage_LongestDuration(t *testing.T) {
	for _, pull := range []fakecri.Pull{{BytesPerSecond: 1, Delay: math.MaxInt64 - 1}, {BytesPerSecond: 1}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, func(c *fakecri.Config) {
				c.Clock = nil
				c.Registry = []fakecri.Image{{Name: "slow", SizeBytes: math.MaxUint64, Pull: pull}}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := b.PullImage(ctx, spec("slow"), nil, nil)
			requireCode(t, codes.DeadlineExceeded, err)
		})
	}
}

func TestPullImage_FailsOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{}))
		_, err := b.pull("huge:1", nil)
		requireCode(t, codes.Unknown, err, "no space left on device")
		_, err = b.pull("app:1", nil) // 40 of 64 MiB
		require.NoError(t, err)
		require.NoError(t, b.FillDisk(5<<20, 0))
		_, err = b.pull("app:2", nil) // 20 MiB more
		requireCode(t, codes.Unknown, err, "no space left on device")
		require.Nil(t, b.image("app:2"))
		require.NoError(t, b.FillDisk(4<<20, 0))
		_, err = b.pull("app:2", nil)
		require.NoError(t, err)
		require.Zero(t, b.DiskUsage().AvailableBytes)
	})
}

func TestRemoveImage_KeepsLayersOfOtherImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withRegistry(fakecri.Pull{}))
		for _, name := range []string{"app:1", "app:2"} {
			_, err := b.pull(name, nil)
			require.NoError(t, err)
		}
		require.EqualValues(t, 60<<20, b.DiskUsage().UsedBytes)
		require.NoError(t, b.RemoveImage(t.Context(), spec("app:2")))
		require.EqualValues(t, 40<<20, b.DiskUsage().UsedBytes)
		require.NoError(t, b.RemoveImage(t.Context(), spec("app:1")))
		require.Zero(t, b.DiskUsage().UsedBytes)
	})
}

func TestDiskUsage(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) { c.Images = []fakecri.Image{{Name: "demo/writer:1", SizeBytes: 1 << 20}} })
	usage := b.DiskUsage()
	require.Equal(t, fakecri.DiskUsage{
		CapacityBytes: 100 << 30, UsedBytes: 1 << 20, AvailableBytes: 100<<30 - 1<<20,
		Inodes: 6_553_600, InodesUsed: 64, InodesFree: 6_553_600 - 64,
	}, usage)

	require.NoError(t, b.FillDisk(50<<30, 100))
	_, id := b.start("a", "demo/writer:1")
	b.clock.Step(10 * time.Second)
	usage = b.DiskUsage()
	require.EqualValues(t, 50<<30+161<<20, usage.UsedBytes)
	require.EqualValues(t, 264, usage.InodesUsed)
	info, err := b.ImageFsInfo(t.Context())
	require.NoError(t, err)
	fs := info.GetImageFilesystems()[0]
	require.Equal(t, usage.UsedBytes, fs.GetUsedBytes().GetValue())
	require.Equal(t, usage.InodesUsed, fs.GetInodesUsed().GetValue())

	// The usage of a disk never exceeds its capacity.
	b.clock.Step(100 * time.Hour)
	usage = b.DiskUsage()
	require.Equal(t, usage.CapacityBytes, usage.UsedBytes)
	require.Zero(t, usage.AvailableBytes)
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	require.EqualValues(t, 50<<30+1<<20, b.DiskUsage().UsedBytes)
	require.NoError(t, b.FillDisk(0, 0))
	require.EqualValues(t, 1<<20, b.DiskUsage().UsedBytes)

	require.ErrorContains(t, b.FillDisk(100<<30+1, 0), "the values exceed the disk's 107374182400 bytes")
	require.ErrorContains(t, b.FillDisk(0, 1e9), "6553600 inodes")
	require.EqualValues(t, 1<<20, b.DiskUsage().UsedBytes)
}

func TestValidateImages(t *testing.T) {
	layer := func(name string, size uint64) fakecri.Layer { return fakecri.Layer{Name: name, SizeBytes: size} }
	_, err := fakecri.New(fakecri.Config{
		Images: []fakecri.Image{
			{Name: "a", Layers: []fakecri.Layer{layer("", 1), layer("x", 1), layer("x", 1)}},
			{Name: "b", SizeBytes: 3, Layers: []fakecri.Layer{layer("y", 1), layer("z", 1)}},
			{Name: "c", SizeBytes: 2, Layers: []fakecri.Layer{layer("y", 1), layer("z", 1)}},
		},
		Registry: []fakecri.Image{
			{Name: "d", Layers: []fakecri.Layer{layer("x", 2)}},
			{Name: "e", Pull: fakecri.Pull{Delay: -1, Password: "x", Error: "no", BytesPerSecond: 1}},
		},
	})
	require.Equal(t, []string{
		`fakecri: invalid config: field Images[0]: field Layers[0]: field Name is required`,
		`field Layers[2]: duplicate layer "x"`,
		`field Images[1]: field SizeBytes: 3 is not the sum of the layers, 2`,
		`field Registry[1]: field Pull: field Delay: -1ns is negative`,
		`field Password needs a Username`,
		`field BytesPerSecond: a pull that fails with Error fetches nothing`,
		`image "d": layer "x" has 2 bytes here and 1 elsewhere`,
	}, strings.Split(err.Error(), "\n"))
}
